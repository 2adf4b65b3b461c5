import json
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

import lucid_app.bench.pairs
from lucid_app.bench.arm import StepClock, measured_fit
from lucid_app.bench.pairs import Plan, arm_order, measure_pairs, source_digest
from lucid_app.bench.verdict import bytes_table, compared_bytes, summary, verdict
from lucid_train import ConfigError, FitConfig, Progress

PARTS = ("model", "optimizer", "scheduler", "ema", "losses", "metrics")


def run_of(seconds, digest="a", part=None):
    parts = {name: digest if part in (None, name) else "a" for name in PARTS}
    return {
        "fit_s": seconds,
        "process_s": seconds + 5,
        "fingerprint": {**parts, "all": "".join(parts.values())},
    }


def pairs_of(*times, digest="a", part=None):
    return [{"baseline": run_of(b), "candidate": run_of(c, digest, part)} for b, c in times]


SCREEN = {"baseline": run_of(100.0), "candidate": run_of(98.0)}
CLEAR = pairs_of((100, 80), (102, 82), (98, 79), (101, 81), (99, 80))


def plan_of(**data):
    configs = {
        "baseline": FitConfig().updated(run={"device": "cpu"}),
        "candidate": FitConfig().updated(run={"device": "cpu"}, data={"cache_train_images": True}),
    }
    return Plan({"baseline": "a.yaml", "candidate": "b.yaml"}, configs, screen_batch=data.get("screen", 64))


class Fits:
    """Stands in for fits in fresh processes; the n-th call may be interrupted."""

    def __init__(self, stop_at=None):
        self.calls, self.stop_at = [], stop_at

    def __call__(self, arm, file, config, folder):
        if len(self.calls) + 1 == self.stop_at:
            raise KeyboardInterrupt
        self.calls.append((arm, config.data.batch))
        return run_of(10.0 + len(self.calls))


def test_a_clear_gain_with_equal_bytes_is_claimed_with_its_scope_and_the_larger_batch():
    said = verdict(CLEAR, SCREEN, "on this machine", 64)
    assert said.startswith(
        "the candidate takes 19.61 % less complete fit time (median of 5 pairs, 19.19 to 20.00 %)"
    )
    assert "the same bytes learned: on this machine." in said
    assert said.endswith("At batch 64: 2.00 % less (one pair, no claim).")


def test_nothing_is_claimed_when_the_baseline_does_not_repeat_itself():
    pairs = [*CLEAR[:2], {"baseline": run_of(98, "b", "losses"), "candidate": run_of(79)}]
    said = verdict(pairs, SCREEN, "here", 64)
    assert said.startswith("no claim: the baseline does not repeat itself (losses differ")
    assert "%" not in said.split("At batch")[0]


@pytest.mark.parametrize(
    ("pairs", "why"),
    [
        (CLEAR[:2], "2 of the 5 pairs"),
        (pairs_of((100, 80), (100, 101), (100, 82), (100, 80), (100, 80)), "do not agree"),
        (pairs_of((100, 93), (100, 94), (100, 95), (100, 94), (100, 94)), "a claim needs 8 %"),
    ],
)
def test_no_claim_says_why(pairs, why):
    said = verdict(pairs, SCREEN, "here", 64)
    assert said.startswith("no claim (")
    assert why in said


def test_other_bytes_are_said_loudly_and_name_the_part():
    pairs = pairs_of((100, 80), (102, 82), (98, 79), digest="b", part="optimizer")
    assert compared_bytes(pairs).candidate == ("optimizer",)
    assert "OTHER bytes learned (optimizer)" in verdict(pairs, SCREEN, "here", 64)
    row = next(row for row in bytes_table(pairs, compared_bytes(pairs)) if row["part"] == "optimizer")
    assert list(row.values()) == ["optimizer", "yes", "no"]


def test_a_slower_candidate_takes_more():
    assert "20.00 % MORE complete fit time" in verdict(pairs_of(*[(100, 120)] * 3), SCREEN, "here", 64)


def test_the_slow_outlier_is_in_the_range():
    row = summary(pairs_of((100, 80), (100, 82), (400, 81)))[0]
    assert row["baseline"] == "100.00 (100.00 to 400.00)"
    assert row["reduction in a pair, %"] == "20.00 (18.00 to 79.75)"


def test_a_warm_up_pair_is_not_counted_and_the_order_alternates(tmp_path):
    fits = Fits()
    pairs, screen = measure_pairs(plan_of(), 3, tmp_path, str, fits)
    arms = [arm for arm, _ in fits.calls]
    assert arms == [*arm_order("1") * 2, *arm_order("2"), *arm_order("3"), *arm_order("screen")]
    assert arm_order("2") == ("candidate", "baseline")
    assert [batch for _, batch in fits.calls] == [16] * 8 + [64] * 2
    assert len(pairs) == 3
    assert pairs[0]["baseline"]["fit_s"] == 13.0  # the third call: the two of the warm-up are not kept
    assert screen["baseline"]["fit_s"] == 19.0


def test_an_interrupted_measurement_keeps_its_finished_pairs_and_continues(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        measure_pairs(plan_of(), 3, tmp_path, str, Fits(stop_at=8))
    kept = {file.name: file.read_bytes() for file in (tmp_path / "pairs").iterdir()}
    assert sorted(kept) == ["1.json", "2.json"]
    again = Fits()
    measure_pairs(plan_of(), 3, tmp_path, str, again)
    assert len(again.calls) == 6  # warm-up, the third pair, the larger batch
    assert {name: (tmp_path / "pairs" / name).read_bytes() for name in kept} == kept
    assert measure_pairs(plan_of(), 3, tmp_path, str, Fits(stop_at=1))[0]  # nothing is left to do


def test_a_folder_of_another_measurement_is_refused(tmp_path):
    measure_pairs(plan_of(), 1, tmp_path, str, Fits())
    other = replace(plan_of(), configs=dict.fromkeys(("baseline", "candidate"), FitConfig()))
    with pytest.raises(ConfigError, match="another pair of configurations"):
        measure_pairs(other, 1, tmp_path, str, Fits())


def test_a_measurement_of_code_that_was_changed_since_is_not_continued(tmp_path, monkeypatch):
    measure_pairs(plan_of(), 1, tmp_path, str, Fits())
    assert source_digest() == source_digest()
    (tmp_path / "changed").mkdir()
    (tmp_path / "changed" / "__init__.py").write_text("")
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path / "changed")])
    monkeypatch.setattr(lucid_app.bench.pairs, "find_spec", lambda name: spec)
    with pytest.raises(ConfigError, match="another state of lucid's code"):
        measure_pairs(plan_of(), 1, tmp_path, str, Fits())


def test_a_larger_batch_that_cannot_be_run_costs_no_pair(tmp_path):
    class Full(Fits):
        def __call__(self, arm, file, config, folder):
            if config.data.batch == 64:
                raise ValueError("baseline (a.yaml): out of memory")
            return super().__call__(arm, file, config, folder)

    pairs, screen = measure_pairs(plan_of(), 2, tmp_path, str, Full())
    assert screen == "baseline (a.yaml): out of memory"
    assert "At batch 64: not run (baseline (a.yaml): out of memory)." in verdict(pairs, screen, "here", 64)
    again = Fits()
    again_pairs, smaller = measure_pairs(plan_of(screen=32), 2, tmp_path, str, again)
    assert again_pairs == pairs
    assert [batch for _, batch in again.calls] == [16, 16, 32, 32]
    assert isinstance(smaller, dict)


def test_a_folder_with_something_else_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="something else"):
        measure_pairs(plan_of(), 1, tmp_path, str, Fits())


def test_steady_steps_leave_out_the_first_epoch():
    clock = StepClock()
    for epoch, step in [(0, 1), (0, 2), (1, 1), (1, 2), (1, 3)]:
        clock(Progress("train", epoch, 2, step, 3))
    clock(Progress("validate", 1, 2, 1, 1))
    assert len(clock.steady_ms()) == 2


def test_a_measured_fit_has_times_memory_and_digests(scenes, tmp_path):
    config = FitConfig().updated(
        data={"path": scenes, "image_size": 64, "batch": 5, "workers": 0},
        run={"epochs": 1, "device": "cpu", "output": tmp_path / "run", "fingerprint": True},
    )
    (tmp_path / "config.yaml").write_text(config.to_yaml())
    found = measured_fit(tmp_path / "config.yaml")
    assert set(PARTS) < set(found["fingerprint"])
    assert found["rss_mib"] > 0
    assert found["fit_s"] > 0
    json.dumps(found, allow_nan=False)


def test_a_configuration_that_is_not_there_is_one_line(lucid, scenes):
    status, _, said = lucid("bench", "fit", "--baseline", "a.yaml", "--candidate", "b.yaml", "--data", scenes)
    assert status == 2
    assert said.strip() == (
        "error: a.yaml: no such configuration; give a YAML file, such as the config.yaml of a run"
    )


def test_a_fit_that_fails_in_its_process_says_which_and_why(lucid, scenes):
    for name, workers in (("a", 1), ("b", 0)):
        (lucid.folder / f"{name}.yaml").write_text(
            f"data: {{image_size: 64, workers: {workers}, epoch_prefetch: true}}\nrun: {{epochs: 1, device: cpu}}\n"
        )
    words = ["--baseline", "b.yaml", "--candidate", "a.yaml", "--data", scenes, "--pairs", 1, "--quiet"]
    status, _, said = lucid("bench", "fit", *words)
    assert status == 2
    assert said.startswith("error: baseline (b.yaml): data.epoch_prefetch has worker processes")
    assert not any(name.startswith("bench-fit/work-") for name in lucid.files())


WATCHED = """
import os, signal, sys, time
from lucid_app.bench.arm import end_with_parent

signal.alarm(30)
end_with_parent()
time.sleep(0.2)  # the thread reads by now
child = os.fork()
if not child:
    signal.alarm(10)
    sys.stdin.close()  # as multiprocessing does in the process it forked
    os._exit(0)
_, status = os.waitpid(child, 0)
print("stuck" if status else "forked", flush=True)
time.sleep(60)
"""


def test_a_measured_process_may_fork_and_ends_with_its_parent():
    pipes = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", WATCHED], **pipes) as process:
        assert process.stdout.readline() == b"forked\n"
        process.stdin.close()
        assert process.wait(20) == 130
