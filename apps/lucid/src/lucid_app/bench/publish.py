"""``lucid bench publish``: put the figures of result files into pages, so that no figure is copied by hand.

A page holds blocks between two comments. The first names a result file, or a pattern of them, and what is shown: the
title of a table, ``machine``, ``notes`` or ``all``::

    <!-- result: benchmarks/results/eval-cpu.json | machine -->
    <!-- end result -->
"""

import re
from pathlib import Path
from typing import Annotated

import typer

from lucid_app.bench.record import Record, machine_line, markdown, note_lines, read_record
from lucid_app.console import out
from lucid_train import ConfigError, write_text

BLOCK = re.compile(
    r"<!-- result: (?P<file>[^|]+?) \| (?P<part>.+?) -->\n(?P<body>.*?)<!-- end result -->", re.DOTALL
)


def publish(
    pages: Annotated[list[Path], typer.Argument(help="Markdown pages.")],
    root: Annotated[Path, typer.Option(help="Folder that the names of result files start from.")] = Path(),
    check: Annotated[
        bool,
        typer.Option("--check", help="Change nothing; exit status 1 where a page is behind its results."),
    ] = False,
) -> None:
    """Write the figures of result files into the pages that name them.

    Examples:
        lucid bench publish apps/lucid/docs/benchmarks.md

        lucid bench publish --check packages/*/docs/benchmark.md
    """
    behind = []
    for page in pages:
        try:
            text = page.read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise ConfigError(f"{page}: no such page") from error
        fresh = filled(text, root, page)
        if fresh == text:
            continue
        behind.append(str(page))
        if not check:
            write_text(page, fresh)
            out.print(str(page), soft_wrap=True)
    if check and behind:
        raise ValueError(
            f"behind their results: {', '.join(behind)}; run lucid bench publish without --check"
        )


def filled(text: str, root: Path, page: Path) -> str:
    """Return the text of a page with every block holding what its result file holds.

    Raises:
        OSError: a result file cannot be read.
        ValueError: it is no result, or has no such table; or a block has no end.
    """
    if text.count("<!-- result:") != len(BLOCK.findall(text)):
        raise ValueError(f"{page}: a block of results is not closed; each needs its <!-- end result -->")

    def block(found: re.Match[str]) -> str:
        files = sorted(root.glob(found["file"]))
        if not files:
            raise FileNotFoundError(f"{page}: {found['file']} names no result file under {root.resolve()}")
        shown = "\n\n".join(
            part_of(read_record(file), found["part"], file.relative_to(root).as_posix()) for file in files
        )
        return f"<!-- result: {found['file']} | {found['part']} -->\n\n{shown}\n\n<!-- end result -->"

    return BLOCK.sub(block, text)


def part_of(record: Record, part: str, file: str) -> str:
    """Return one part of a record as Markdown.

    Raises:
        ValueError: the record has no table of that title.
    """
    if part == "machine":
        return f"`{record.command}`\n\n{machine_line(record.machine, record.measured)}"
    if part == "notes":
        return note_lines(record.notes)
    if part == "all":
        return f"### `{file}`\n\n{record.to_markdown().replace('### ', '#### ').rstrip()}"
    if part not in record.tables:
        raise ValueError(f"{file}: no table {part!r}; it has {', '.join(record.tables)}")
    return markdown(record.tables[part])
