"""The report is one valid page that needs nothing else and can be walked without a mouse."""

from html.parser import HTMLParser

import pytest
from matplotlib.figure import Figure

from lucid_viz import ReportFigure, ReportSection, ReportTable, report


class Page(HTMLParser):
    """Collects tags, and fails on one that is closed out of order."""

    VOID = ("meta", "img")

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.words = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def page():
    figure = Figure(figsize=(9, 3))
    figure.subplots().plot([0, 1])
    table = ReportTable(
        ("class", "AP"), (("<b>cat</b> & dog", 0.5), ("none", None), ("whole", 3)), "by class"
    )
    sections = [
        ReportSection("Scores", "one\n\ntwo", tables=(table,)),
        ReportSection("Curves", figures=(ReportFigure(figure, 'loss "by" epoch'),)),
    ]
    return report("run <1>", sections, subtitle="a & b")


def test_text_is_escaped_and_numbers_have_four_digits():
    words = [word for word in Page(page()).words if word.strip()]
    assert words.count("run <1>") == 2
    assert "<b>cat</b> & dog" in words
    assert "0.5000" in words
    assert "3" in words
    assert not Page(page()).all("b")


def test_nothing_is_loaded_and_nothing_runs():
    found = Page(page())
    assert not found.all("script")
    assert not found.all("link")
    addresses = [a.get("src") or a.get("href") for _, a in found.tags if "src" in a or "href" in a]
    assert all(address.startswith(("#", "data:image/png;base64,")) for address in addresses)


def test_pictures_have_words_and_tables_headers():
    found = Page(page())
    assert [image["alt"] for image in found.all("img")] == ['loss "by" epoch']
    assert [head["scope"] for head in found.all("th")] == ["col", "col"]


def test_links_lead_to_every_section_and_wide_parts_take_the_focus():
    found = Page(page())
    ids = {attributes["id"] for _, attributes in found.tags if "id" in attributes}
    targets = [link["href"][1:] for link in found.all("a")]
    assert targets == ["content", "s1", "s2"]
    assert set(targets) <= ids
    regions = [a for a in found.all("div") if a.get("class") == "wide"]
    assert [a["aria-label"] for a in regions] == ["by class", 'loss "by" epoch']
    assert all(a["tabindex"] == "0" for a in regions)


def test_both_colour_schemes_are_styled():
    assert "prefers-color-scheme: dark" in page()


def test_rows_that_do_not_fit_and_empty_reports_are_refused():
    with pytest.raises(ValueError, match="a row of 1 cells under 2 names in 'Scores'"):
        report("x", [ReportSection("Scores", tables=(ReportTable(("a", "b"), (("1",),)),))])
    with pytest.raises(ValueError, match="at least one section"):
        report("x", [])
