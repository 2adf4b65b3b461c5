"""The portal leads to everything: every page, every package, every replay option, every licence."""

import importlib.util
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from lucid_train import REPLAY_SWITCHES, SPEED_SWITCHES

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(
    [*ROOT.glob("docs/**/*.md"), *ROOT.glob("packages/*/docs/**/*.md"), *ROOT.glob("apps/*/docs/**/*.md")]
)
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)#([^)\s]+)\)")


def script(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def slugs(text: str) -> set[str]:
    """The anchors that mkdocs gives to a page's headings."""
    heads = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", head.lower()).strip()) for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_headings_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for file, anchor in LINK.findall(text):
        target = (page.parent / file).resolve() if file else page
        if target.suffix == ".md":
            assert anchor in slugs(target.read_text(encoding="utf-8")), f"{file}#{anchor}"


def test_every_page_is_in_the_navigation_and_in_llms_txt():
    def files(node):
        if isinstance(node, str):
            return [node]
        return [name for part in (node.values() if isinstance(node, dict) else node) for name in files(part)]

    listed = set(re.findall(r"\]\(([^)]+)\)", (DOCS / "llms.txt").read_text(encoding="utf-8")))
    assert all((ROOT / name).is_file() for name in listed)
    for config in (ROOT / "mkdocs.yml", *ROOT.glob("packages/*/mkdocs.yml"), *ROOT.glob("apps/*/mkdocs.yml")):
        folder = config.parent / "docs"
        there = {page.relative_to(folder).as_posix() for page in folder.rglob("*.md")}
        assert set(files(yaml.safe_load(config.read_text(encoding="utf-8"))["nav"])) == there, config
        known = {name for name in listed if (ROOT / name).is_relative_to(folder)}
        wanted = {(folder / name).relative_to(ROOT).as_posix() for name in there}
        assert wanted - known <= {"docs/index.md"}, config


def test_the_portal_links_every_package():
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    for site in (*ROOT.glob("packages/*/mkdocs.yml"), *ROOT.glob("apps/*/mkdocs.yml")):
        assert f"../{site.parent.relative_to(ROOT)}/docs/index.md" in text


@pytest.mark.parametrize("option", [*REPLAY_SWITCHES, *SPEED_SWITCHES])
def test_every_option_has_a_page_with_its_contract_and_where_it_is_slower(option):
    text = (DOCS / "replay" / f"{option}.md").read_text(encoding="utf-8")
    for head in ("Contract", "When it is native", "Where it is slower", "Measured"):
        assert f"\n## {head}\n" in text
    assert f"--{option.replace('_', '-')}" in text
    assert f"({option}.md)" in (DOCS / "replay" / "index.md").read_text(encoding="utf-8")


def test_papers_are_those_that_the_modules_cite():
    provenance = script("provenance")
    text = provenance.PAGE.read_text(encoding="utf-8")
    rows = [f"| `{name}` | {cited} |" for name, cited in provenance.papers()]
    assert re.findall(r"^\| `.*$", text, re.MULTILINE) == rows, "run .ci/provenance.py"


def test_licences_are_those_of_what_is_installed():
    provenance = script("provenance")
    text = provenance.PAGE.read_text(encoding="utf-8")
    for name, found in provenance.needed().items():
        said = provenance.licence(found)
        assert said, f"{name} states no licence"
        if provenance.VENDOR in said:
            assert name in text
        else:
            assert f"| {name} | {said} |" in text, f"{name}: {said}; run .ci/provenance.py"


def test_no_licence_reaches_beyond_its_own_files():
    rows = re.findall(r"^\| ([a-z0-9-]+) \| (.+) \|$", (DOCS / "provenance.md").read_text(), re.MULTILINE)
    licences = dict(rows[1:])
    assert len(licences) > 30
    strong = re.compile(r"\b[AL]?GPL|General Public|SSPL|BUSL|Commons Clause|NonCommercial", re.IGNORECASE)
    assert {name: said for name, said in licences.items() if strong.search(said)} == {}


def test_no_weights_are_tracked():
    suffixes = {".ckpt", ".pt", ".pth", ".safetensors", ".onnx", ".bin"}
    folders = ("packages", "apps", "docs", "tests")
    found = [file for folder in folders for file in (ROOT / folder).rglob("*") if file.suffix in suffixes]
    assert [file for file in found if "runs" not in file.parts and ".venv" not in file.parts] == []


def test_links_of_built_sites_are_followed(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "index.html").write_text(
        '<a href="a/">x</a><a href="a/#there">x</a><a href="https://b.c">x</a>'
    )
    (tmp_path / "a" / "index.html").write_text('<h2 id="there"></h2><img src="../p.png"><a href="../">x</a>')
    assert script("links").broken(tmp_path) == ["a/index.html: ../p.png"]
    (tmp_path / "p.png").write_bytes(b"")
    assert script("links").broken(tmp_path) == []
    (tmp_path / "index.html").write_text('<a href="a/#gone">x</a><a href="b/">x</a>')
    assert script("links").broken(tmp_path) == ["index.html: a/#gone", "index.html: b/"]


@pytest.mark.parametrize(
    ("url", "text", "expected"),
    [
        ("", "[x](../packages/lucid-data/docs/index.md)", "[x](lucid-data/)"),
        (
            "how-to/own-data/",
            "[x](../../apps/lucid/docs/how-to.md#deploy)",
            "[x](../../lucid/how-to/#deploy)",
        ),
        ("notebooks/", "[`x.py`](../apps/notebooks/x.py)", "`x.py`"),
        ("start/", "[x](how-to/own-data.md)", "[x](how-to/own-data.md)"),
    ],
)
def test_links_to_packages_are_right_in_the_built_portal(url, text, expected):
    assert script("portal").on_page_markdown(text, page=SimpleNamespace(url=url)) == expected
