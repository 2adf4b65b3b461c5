"""Groups of commands that are imported when they are chosen: help, the version and a mistyped word need no torch."""

from collections import UserDict
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup

from lucid_app.help import Command, Helpful


@dataclass(frozen=True)
class Later:
    """A command that is not imported yet.

    Attributes:
        place: ``module:name`` of its function, or of the typer app of a group.
        line: what the help of its group says of it: the first line of its own.
    """

    place: str
    line: str

    def command(self, name: str) -> Any:
        """Import the command and return it under its name."""
        module, _, attribute = self.place.partition(":")
        found = getattr(import_module(module), attribute)
        if not isinstance(found, typer.Typer):
            function, found = found, typer.Typer(add_completion=False)
            found.command(name, cls=Command)(function)
        command = typer.main.get_command(found)
        command.name = name
        return command


class _Commands(UserDict[str, Any]):
    """The commands of a group by name; one that is asked for is imported first."""

    def __getitem__(self, name: str) -> Any:
        command = self.data[name]
        if isinstance(command, Later):
            command = self.data[name] = command.command(name)
        return command


class LazyGroup(Helpful, TyperGroup):
    """A group of the commands in ``table``."""

    table: ClassVar[Mapping[str, Later]]

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Commands(self.table)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return what help and completion show of a command, which is its line."""
        later = self.table.get(cmd_name)
        return None if later is None else Command(cmd_name, help=later.line)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command that the first word chooses, imported now, and the words that are left for it."""
        name, shown, rest = super().resolve_command(ctx, args)
        return name, None if shown is None else self.commands[args[0]], rest
