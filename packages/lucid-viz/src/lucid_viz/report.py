"""A report as one HTML file that needs nothing else: text, tables and figures, in light and dark."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from matplotlib.figure import Figure

_WIDE = 2.0
Cell = str | int | float | None


@dataclass(frozen=True)
class ReportTable:
    """Rows under a header; numbers are aligned right, and None is an empty cell."""

    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""


@dataclass(frozen=True)
class ReportFigure:
    """A figure and what it shows, in words; the words are also its alternative text."""

    figure: Figure
    caption: str


@dataclass(frozen=True)
class ReportSection:
    """One part of a report."""

    title: str
    text: str = ""
    tables: tuple[ReportTable, ...] = ()
    figures: tuple[ReportFigure, ...] = ()


def report(title: str, sections: Sequence[ReportSection], *, subtitle: str = "") -> str:
    """Return the HTML of a report: one file, no script, nothing loaded from elsewhere.

    It follows the reader's light or dark setting, fits a phone, and is walked by keyboard: a link skips to the content,
    a list of links leads to the sections, and wide tables take the focus so that arrow keys scroll them.

    Raises:
        ValueError: no section, or a table whose rows are not as long as its header.

    Example:
        >>> "<h2" in report("Run", [ReportSection("Settings", "none")])
        True
    """
    if not sections:
        raise ValueError("a report needs at least one section")
    links = "".join(f'<li><a href="#s{n}">{escape(s.title)}</a></li>' for n, s in enumerate(sections, 1))
    body = "".join(_section(section, number) for number, section in enumerate(sections, 1))
    below = f"<p>{escape(subtitle)}</p>" if subtitle else ""
    return _PAGE.format(title=escape(title), subtitle=below, links=links, body=body, style=_STYLE)


def _section(section: ReportSection, number: int) -> str:
    parts = [f'<h2 id="s{number}h">{escape(section.title)}</h2>']
    parts += [f"<p>{escape(paragraph)}</p>" for paragraph in section.text.split("\n\n") if paragraph]
    parts += [_figure(figure) for figure in section.figures]
    parts += [_table(table, section.title) for table in section.tables]
    return f'<section id="s{number}" aria-labelledby="s{number}h">{"".join(parts)}</section>'


def _figure(item: ReportFigure) -> str:
    stream = io.BytesIO()
    item.figure.savefig(stream, format="png", dpi=110)
    data = base64.b64encode(stream.getvalue()).decode("ascii")
    words = escape(item.caption, quote=True)
    picture = f'<img src="data:image/png;base64,{data}" alt="{words}">'
    width, height = item.figure.get_size_inches()
    if width > _WIDE * height:
        # legible on a phone by scrolling rather than by shrinking
        picture = f'<div class="wide" tabindex="0" role="region" aria-label="{words}">{picture}</div>'
    return f"<figure>{picture}<figcaption>{words}</figcaption></figure>"


def _table(table: ReportTable, title: str) -> str:
    for row in table.rows:
        if len(row) != len(table.header):
            raise ValueError(f"a row of {len(row)} cells under {len(table.header)} names in {title!r}")
    # a table's own caption is squeezed to the table's width
    caption = f'<p class="caption">{escape(table.caption)}</p>' if table.caption else ""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.header)
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table.rows)
    label = escape(table.caption or title, quote=True)
    return (
        f'{caption}<div class="wide" tabindex="0" role="region" aria-label="{label}"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _cell(value: Cell) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, str):
        return f"<td>{escape(value)}</td>"
    return f'<td class="n">{value:.4f}</td>' if isinstance(value, float) else f'<td class="n">{value}</td>'


_STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1f24; --faint: #57606a; --line: #d8dee4; --link: #0b57d0; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14171b; --ink: #e6e8ea; --faint: #9aa4ae; --line: #343a42; --link: #8ab4f8; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
header, main, nav { max-width: 70rem; margin: 0 auto; padding: 0 1rem; }
header { padding-top: 1.5rem; }
h1 { margin: 0; font-size: 1.6rem; overflow-wrap: anywhere; }
h2 { margin: 2rem 0 .5rem; font-size: 1.2rem; border-bottom: 1px solid var(--line); }
header p, figcaption, .caption { color: var(--faint); font-size: .9rem; text-align: left; }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1rem; padding: 0; list-style: none; }
a { color: var(--link); }
.skip { position: absolute; left: -100rem; } .skip:focus { left: 1rem; top: 1rem; }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
figure { margin: 1rem 0; } figure img { max-width: 100%; height: auto; background: #fff; border-radius: 4px; }
.wide { overflow-x: auto; margin: .75rem 0; } .wide img { min-width: 46rem; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: .2rem .7rem .2rem 0; text-align: left; border-bottom: 1px solid var(--line); white-space: nowrap; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
"""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{style}</style></head>
<body><a class="skip" href="#content">Skip to the content</a>
<header><h1>{title}</h1>{subtitle}</header>
<nav aria-label="Sections"><ul>{links}</ul></nav>
<main id="content" tabindex="-1">{body}</main></body></html>
"""
