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


class _Loading(UserDict[str, Any]):
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
        self.commands = _Loading(self.table)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of the table."""
        return list(self.table)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Return the commands that begin so, each with its line, and the options; no command is imported for it."""
        commands: Any = {name: Command(name, help=later.line) for name, later in self.table.items()}
        lines = TyperGroup(commands=commands, add_help_option=False)
        named = lines.shell_complete(typer.Context(lines), incomplete)
        return [*named, *super(TyperGroup, self).shell_complete(ctx, incomplete)]
