import importlib
import json

import pytest

from lucid_app.bench.limits import compute_limit, memory_limit
from lucid_app.bench.publish import filled
from lucid_app.bench.record import Record, read_record, save
from lucid_app.bench.turns import times

COMMANDS = {
    "step": ["--threads", "1"],
    "loader": [],
    "predict": ["--threads", "1"],
    "optim": ["--threads", "1"],
    "geometry": ["--threads", "1"],
    "eval": [],
    "open": [],
    "replay": ["--device", "cpu", "--threads", "1"],
    "scaling": ["--threads", "1"],
}


@pytest.fixture
def one_process(monkeypatch):
    """Has what ``open`` asks of new processes done in this one, which knows the library already."""

    class Answer:
        def send(self, value):
            self.value = value

    def call(method, task, *arguments):
        answer = Answer()
        task(answer, *arguments)
        return answer.value

    monkeypatch.setattr("lucid_app.bench.opening.in_process", call)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.usefixtures("one_process")
def test_a_measurement_leaves_tables_machine_and_the_line_that_repeats_it(lucid, command):
    status, out, said = lucid("bench", command, *COMMANDS[command], "--quick", "--json", "--output", "r.json")
    assert status == 0, said
    document = json.loads(out)
    assert document == json.loads((lucid.folder / "r.json").read_text())
    assert document["command"] == " ".join(["lucid", "bench", command, *COMMANDS[command], "--quick"])
    assert document["tables"]
    for rows in document["tables"].values():
        assert len({tuple(row) for row in rows}) == 1
    page = (lucid.folder / "r.md").read_text()
    assert all(title in page for title in document["tables"])


def test_every_route_of_the_loader_is_measured_with_what_it_is_named_after(lucid, monkeypatch):
    pytest.importorskip("numba", reason="Numba is not installed")
    module = importlib.import_module("lucid_app.bench.loader")
    made, build = [], module.TrainPipeline

    def watched(*given, cache=None, device_color=False, fused_color=False):
        kept = "no" if cache is None else "decoded" if cache.image_size is None else "prepared"
        made.append((kept, "device" if device_color else "fused" if fused_color else "plain"))
        return build(*given, cache=cache, device_color=device_color, fused_color=fused_color)

    monkeypatch.setattr(module, "TrainPipeline", watched)
    _, out, _ = lucid("bench", "loader", "--quick", "--json")
    rows = next(iter(json.loads(out)["tables"].values()))
    for row, (kept, colour) in zip(rows, made, strict=False):
        named = [f"{kept} cache"] * (kept != "no") + [f"{colour} colour"] * (colour != "plain")
        assert row["route"] == (", ".join(named) or "plain")
        # the profiler finds the stages where they are called
        assert "0 %" not in (row["draw"], row["labels"])
    assert len(rows) == 9


def test_without_numba_its_routes_are_left_out_and_noted(lucid, monkeypatch):
    module = importlib.import_module("lucid_app.bench.loader")
    monkeypatch.setattr(module, "has_numba", lambda: False)
    monkeypatch.setattr(module, "measured", lambda catalog, size, count, route: {"route": route})
    monkeypatch.setattr(module, "device_colour", lambda *_: ([], "limit"))
    _, out, _ = lucid("bench", "loader", "--quick", "--json")
    document = json.loads(out)
    rows = next(iter(document["tables"].values()))
    assert len(rows) == 6
    assert [row for row in rows if "fused" in row["route"]] == []
    assert "Numba is not installed: fused colour is left out" in document["notes"]


def test_scoring_by_every_engine_gives_the_numbers_of_the_reference(lucid):
    _, out, _ = lucid("bench", "eval", "--quick", "--json")
    (rows,) = json.loads(out)["tables"].values()
    assert {row["AP"] for row in rows} == {rows[0]["AP"]}
    assert 0 < rows[0]["AP"] < 1


def test_competitors_take_turns():
    order = []
    calls = {name: lambda name=name: order.append(name) for name in "ab"}
    found = times(calls, 3, warm=1)
    assert "".join(order) == "ab" + "ab" + "ba" + "ab"
    assert [len(ms) for ms in found.values()] == [3, 3]


def test_limits_are_the_quotient_of_work_and_rate():
    # 3 GFLOP at 60 GFLOP/s are 50 ms; 10 MB at 2 GB/s are 5 ms
    assert "at least 50.0 ms; measured 200.0 ms, 25 %" in compute_limit("x", 3 * 10**9, 60e9, 200.0)
    assert "at least 5.00 ms; measured 10.00 ms, 50 %" in memory_limit("x", 10**7, 2e9, 10.0)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["step", "--task", "paint"], "--task paint: choose detect, segment, pose, obb"),
        (["step", "--image-size", "100"], "--image-size 100: give a positive multiple of 32"),
        (["predict", "--batch", "0"], "--batch 0: give 1 or more"),
        (["optim", "--only", "VGG"], "--only VGG: no such model"),
        (["geometry", "--output", "table.txt"], "--output table.txt: give a file name that ends in .json"),
        (["eval", "--rounds", "0"], "--rounds 0: give 1 or more"),
    ],
)
def test_a_wrong_option_is_one_line_before_any_work(lucid, words, why):
    status, out, said = lucid("bench", *words)
    assert status == 2
    assert said.startswith(f"error: {why}")
    assert out == ""
    assert lucid.files() == []


def test_an_older_torchvision_is_one_line(lucid, monkeypatch):
    monkeypatch.setattr("lucid_app.bench.geometry.torchvision_box_iou", lambda boxes1, boxes2: None)
    status, _, said = lucid("bench", "geometry", "--quick")
    assert status == 1
    assert said.startswith("error: the installed torchvision knows no rotated boxes; install lucid-app")
    assert len(said.strip().splitlines()) == 1


@pytest.fixture
def results(tmp_path):
    record = Record(
        "eval", "lucid bench eval", {"processor": "P"}, {"Times": [{"route": "a", "ms": 1.5}]}, ("so",)
    )
    save(record, tmp_path / "results" / "eval-cpu.json")
    return tmp_path


def block(part, file="results/eval-cpu.json"):
    return f"before\n<!-- result: {file} | {part} -->\n<!-- end result -->\nafter\n"


def test_a_record_is_read_as_it_was_written(results):
    assert read_record(results / "results" / "eval-cpu.json").tables == {"Times": [{"route": "a", "ms": 1.5}]}


@pytest.mark.parametrize(
    ("part", "shown"), [("Times", "| a | 1.5 |"), ("machine", "processor P"), ("notes", "- so")]
)
def test_a_block_is_filled_from_its_result_file(results, part, shown):
    text = filled(block(part), results, results / "page.md")
    assert shown in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert filled(text, results, results / "page.md") == text


def test_a_pattern_shows_every_file(results):
    text = filled(block("all", "results/*.json"), results, results / "page.md")
    assert "### `results/eval-cpu.json`" in text
    assert "#### Times" in text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (block("Sizes"), "no table 'Sizes'; it has Times"),
        (block("Times", "results/gone.json"), "names no result file"),
        (block("Times").replace("<!-- end result -->", ""), "not closed"),
    ],
)
def test_a_block_that_cannot_be_filled_is_refused(results, text, why):
    with pytest.raises((ValueError, OSError), match=why):
        filled(text, results, results / "page.md")
