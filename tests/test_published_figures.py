"""Every published figure names the result file that holds it, and is what that file holds."""

import json
import re
from pathlib import Path

import pytest

from lucid_app.main import run

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    [
        page
        for pattern in ("README.md", "packages/**/*.md", "apps/**/*.md", "docs/**/*.md")
        for page in ROOT.glob(pattern)
        if "<!-- result:" in page.read_text(encoding="utf-8")
    ]
)
BENCHMARK_PAGES = sorted([*ROOT.glob("packages/*/docs/benchmark.md"), ROOT / "apps/lucid/docs/benchmarks.md"])
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
BLOCK = re.compile(r"<!-- result: ([^|]+?) \| .+? -->.*?<!-- end result -->", re.DOTALL)
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
# a figure is a number with a unit of speed, memory or gain
FIGURE = re.compile(
    r"(?<![\w.])(\d[\d,]*(?:\.\d+)?) ?(?:ms|seconds?|s|MiB|GiB|images/s|images per second|times (?:faster|slower))\b"
)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def unnamed_figures(text: str) -> list[str]:
    """Figures outside the blocks that no result file named by the page holds; tables of figures outside count too."""
    held = ""
    for pattern in {found[1] for found in BLOCK.finditer(text)}:
        held += "".join(file.read_text(encoding="utf-8") for file in ROOT.glob(pattern))
    prose = CODE.sub("", BLOCK.sub("", text))
    numbers = set(re.findall(r"\d+(?:\.\d+)?", held))
    loose = [found[0] for found in FIGURE.finditer(prose) if found[1].replace(",", "") not in numbers]
    return loose + re.findall(r"^\|(?:.*\| )?\d+\.\d+ \|.*$", prose, re.MULTILINE)


def test_there_are_pages_and_results():
    assert set(BENCHMARK_PAGES) <= set(PAGES)
    assert RESULTS


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_blocks_hold_what_their_result_files_hold(page):
    assert run(["bench", "publish", str(page), "--root", str(ROOT), "--check"]) == 0


@pytest.mark.parametrize("page", BENCHMARK_PAGES, ids=name)
def test_a_benchmark_page_has_no_figure_that_no_result_file_holds(page):
    assert unnamed_figures(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("file", RESULTS, ids=lambda file: file.stem)
def test_a_result_file_says_how_it_came_about_and_its_command_is_one_of_ours(file):
    import typer

    from lucid_app import app

    document = json.loads(file.read_text(encoding="utf-8"))
    assert document["tables"]
    assert {"processor", "threads", "torch", "python"} <= document["machine"].keys()
    words = document["command"].split()
    assert words[:2] == ["lucid", "bench"]
    command = typer.main.get_command(app).commands["bench"].commands[words[2]]
    command.make_context("lucid", words[3:])


@pytest.mark.parametrize("file", RESULTS, ids=lambda file: file.stem)
def test_every_result_file_is_shown(file):
    shown = {
        found
        for page in PAGES
        for block in BLOCK.finditer(page.read_text(encoding="utf-8"))
        for found in ROOT.glob(block[1])
    }
    assert file in shown


def test_a_changed_figure_is_found(tmp_path, capsys):
    page = ROOT / "packages" / "lucid-models" / "docs" / "benchmark.md"
    copy = tmp_path / "page.md"
    text = page.read_text(encoding="utf-8")
    result = json.loads((ROOT / "benchmarks" / "results" / "predict-cpu.json").read_text(encoding="utf-8"))
    figure = str(result["tables"]["detect n at 640 px, batch 1"][0]["ms"])
    assert f"| {figure} |" in text
    for written, status in ((text, 0), (text.replace(f"| {figure} |", "| 0.1 |"), 1)):
        copy.write_text(written, encoding="utf-8")
        assert run(["bench", "publish", str(copy), "--root", str(ROOT), "--check"]) == status


def test_a_figure_of_no_result_file_is_found():
    block = "<!-- result: benchmarks/results/open-cpu.json | notes -->\n<!-- end result -->\n"
    assert unnamed_figures(block + "It takes 123456.5 ms.\n") == ["123456.5 ms"]
    assert unnamed_figures(block + "| route | ms |\n|---|---|\n| quick | 3.25 |\n") == ["| quick | 3.25 |"]
    assert unnamed_figures(block + "Version 3 of 1,200,000 instances.\n") == []
