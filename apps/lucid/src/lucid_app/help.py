"""Help that is whole at any width: names of options are never cut, and examples stand as they are written."""

import re
import shutil
import textwrap
from collections.abc import Sequence
from typing import Any

from rich.markup import escape
from rich.text import Text
from typer.core import TyperCommand

from lucid_app.console import out

_WIDEST = 100
_NAMES = 24  # columns for names; longer ones have a line of their own
_ROOM = 20  # columns that an explanation beside names needs; where there are fewer it stands below
_INDENT = 8


class Helpful:
    """A command or a group that shows its help as a page."""

    def format_help(self: Any, ctx: Any, formatter: Any) -> None:
        """Print the page, as typer does, and leave ``formatter`` empty."""
        width = min(shutil.get_terminal_size().columns, _WIDEST)
        text = Text("\n".join(page(self, ctx, width)))
        text.highlight_regex(r"(?m)^\S.*:$", "bold")
        text.highlight_regex(r"(?<![\w-])--?[a-z][\w-]*", "cyan")
        out.print(text, soft_wrap=True)


class Command(Helpful, TyperCommand):
    """A command that shows its help as a page."""

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Return the options that begin so; what a shell shows of them is no markup, and keeps its brackets."""
        items = super().shell_complete(ctx, incomplete)
        for item in items:
            item.help = item.help and escape(item.help)
        return items


def page(command: Any, ctx: Any, width: int) -> list[str]:
    """Return the lines of a command's help: usage, what it does, examples, then its options by panel."""
    lines = [command.get_usage(ctx), *described(command.help or "", width)]
    for title, entries in _panels(command, ctx).items():
        lines += ["", *_wrapped(f"{title}:", width), *listed(entries, width)]
    return lines


def _panels(command: Any, ctx: Any) -> dict[str, list[tuple[str, str]]]:
    """Return names and explanation of every parameter and command, by the title they stand under."""
    panels: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for parameter in command.get_params(ctx):
        names, about = parameter.get_help_record(ctx) or ("", "")
        title = f"{parameter.param_type_name.title()}s"
        panels.setdefault(parameter.rich_help_panel or title, []).append(
            (re.sub(r"<list\[(\w+)\]>", r"<\1>", names), about)
        )
    if hasattr(command, "table"):
        panels["Commands"] = [(name, later.line) for name, later in command.table.items()]
    return {title: entries for title, entries in panels.items() if entries}


def described(text: str, width: int) -> list[str]:
    r"""Return the lines of a command's text: prose in the width, indented lines as they are and close together.

    Example:
        >>> described("Make tea.\n\nExamples:\n    tea green\n\n    tea black", 60)
        ['', 'Make tea.', '', 'Examples:', '    tea green', '    tea black']
    """
    shown: list[str] = []
    for block in text.split("\n\n"):
        lines = block.splitlines()
        if prose := [line for line in lines if not line.startswith(" ")]:
            shown += ["", *_wrapped(" ".join(prose), width)]
        shown += [line for line in lines if line.startswith(" ")]
    return shown


def listed(entries: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Return the lines of a list of names, each with its explanation beside it, or below where the names are long.

    Example:
        >>> listed([("--to", "Where it goes."), ("--capture-updates / --no-capture-updates", "Records.")], 60)
        ['  --to  Where it goes.', '  --capture-updates / --no-capture-updates', '        Records.']
    """
    short = [len(names) for names, _ in entries if len(names) <= _NAMES]
    column = max(short, default=_NAMES) + 4
    below = width - column < _ROOM
    if below:
        column = min(column, _INDENT)
    lines = []
    for names, about in entries:
        beside = _wrapped(about, width - column)
        if not below and len(names) <= _NAMES and beside:
            lines.append(f"  {names}".ljust(column) + beside.pop(0))
        else:
            lines += [f"  {line}" for line in _wrapped(names, width - 2)]
        lines += [" " * column + line for line in beside]
    return lines


def _wrapped(text: str, width: int) -> list[str]:
    # a name is not broken at its hyphens, nor a default from its value
    whole = re.sub(
        r"\[default: [^\]]*\]", lambda found: found[0].replace(" ", "\xa0"), " ".join(text.split())
    )
    lines = textwrap.wrap(whole, max(1, width), break_on_hyphens=False, break_long_words=False)
    return [line.replace("\xa0", " ") for line in lines]
