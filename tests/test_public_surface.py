"""The public surface is frozen: removing a name or an option fails here; adding one means writing it down."""

import importlib
from pathlib import Path

import typer

SURFACE = Path(__file__).with_name("public_surface.txt")


def current_surface(members) -> list[str]:
    lines = []
    for module in sorted(members):
        lines += [f"{module}.{name}" for name in importlib.import_module(module).__all__]
    from lucid_app import app

    def walk(command, path):
        for parameter in command.params:
            for flag in (*parameter.opts, *parameter.secondary_opts):
                if flag.startswith("--"):
                    lines.append(f"{path} {flag}")
        for name, sub in getattr(command, "commands", {}).items():
            walk(sub, f"{path} {name}")

    walk(typer.main.get_command(app), "lucid")
    return sorted(set(lines))


def test_the_public_surface_is_what_is_written_down(members):
    current, written = current_surface(members), SURFACE.read_text().split("\n")[:-1]
    assert sorted(set(written) - set(current)) == [], "removed"
    assert sorted(set(current) - set(written)) == [], "added: write it into tests/public_surface.txt"
