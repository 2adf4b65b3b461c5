"""What the documentation shows works: python and bash blocks run, other command lines parse, links lead somewhere."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    page
    for pattern in (
        "README.md",
        "docs/**/*.md",
        "packages/*/README.md",
        "packages/*/docs/**/*.md",
        "apps/*/README.md",
        "apps/*/docs/**/*.md",
    )
    for page in ROOT.glob(pattern)
)
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
KNOWN = {"python", "bash", "sh", "text", "yaml", "json", "csv", "toml"}


def blocks(page: Path, language: str) -> list[str]:
    return [body for kind, body in FENCE.findall(page.read_text(encoding="utf-8")) if kind == language]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=name)
def test_python_blocks_run_from_top_to_bottom(page, tmp_path):
    code = "\n".join(blocks(page, "python"))
    # a file, so that loader processes can import what the page defines
    script = tmp_path / "page.py"
    script.write_text(code, encoding="utf-8")
    environment = {**os.environ, "MPLBACKEND": "agg", "OMP_NUM_THREADS": "2"}
    result = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, env=environment
    )
    assert result.returncode == 0, result.stderr[-3000:]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "bash")], ids=name)
def test_bash_blocks_run_from_top_to_bottom(page, tmp_path):
    code = "set -e\n" + "\n".join(blocks(page, "bash"))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    result = subprocess.run(
        ["bash", "-c", code], cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PATH": path}
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_says_what_it_is(page):
    kinds = {kind for kind, _ in FENCE.findall(page.read_text(encoding="utf-8"))}
    assert kinds <= KNOWN, kinds - KNOWN


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_to_files_lead_somewhere(page):
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def shown_commands() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for body in blocks(page, "sh") + blocks(page, "bash"):
            joined = body.replace("\\\n", " ")
            found += [
                (name(page), line.split("#")[0].strip().removeprefix("uv run "))
                for line in joined.splitlines()
                if re.match(r"(uv run )?lucid ", line.strip())
            ]
    return found


@pytest.mark.parametrize(("page", "line"), shown_commands())
def test_shown_command_lines_parse(page, line):
    from lucid_app import app

    command = typer.main.get_command(app)
    words = shlex.split(line.split("&&")[0])[1:]
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    if not {"--help", "--install-completion"} & set(words):  # these act while they are read
        command.make_context("lucid", words)


def test_no_page_tells_anyone_to_take_a_member_from_the_public_index():
    for page in PAGES:
        for line in page.read_text(encoding="utf-8").splitlines():
            assert not re.search(r"(pip|uv) (install|add) [\"']?lucid-\w+[\"']?(\s+(?!@)|$)", line), (
                f"{name(page)}: {line}"
            )


def test_the_readme_of_the_application_names_every_command():
    from lucid_app import app

    text = (ROOT / "apps" / "lucid" / "README.md").read_text(encoding="utf-8")
    (said,) = re.findall(r"^The command line of lucid: (.+)\.$", text, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", said)) == set(typer.main.get_command(app).commands)
