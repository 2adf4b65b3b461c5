"""The compiled step: native bytes where it is only traced, one graph over alphas and batches, native for good after
a failure, and what does not go with it.

``eager`` as back-end of torch.compile follows the trace and compiles nothing, so that bytes can be compared.
"""

import copy
import json

import pytest
import torch
from torch import nn

from lucid_capture import Reason, ReplayWarning, TapeBackend, same_bytes
from lucid_models import BranchOutput, HeadOutput, PaddedTargets, build_loss, make_points
from lucid_train import ConfigError, DetectionLitModule, FitConfig, ProofRow, prove
from lucid_train.callbacks.replay import lend, take_back
from lucid_train.replay import CompiledStep, ReplayPlan, replay_plan
from lucid_train.run_folder import require_same

SIDE, CLASSES = 32, 2
GRID = make_points(SIDE, SIDE)
COMPILE = {"compile_step": True, "backend": "tape"}


class Small(nn.Module):
    """A network of one layer whose output is that of a detector."""

    def __init__(self):
        super().__init__()
        self.points = len(GRID[0])
        self.fields = nn.Linear(12, 2 * self.points * (CLASSES + 4))

    def forward(self, images):
        cells = nn.functional.adaptive_avg_pool2d(images, 2).flatten(1)
        many, one = self.fields(cells).view(len(images), 2, self.points, CLASSES + 4).unbind(1)
        return HeadOutput(
            *(BranchOutput(cls=x[..., :CLASSES], box=x[..., CLASSES:].exp()) for x in (many, one))
        )


def batch(images, rows, seed):
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand(images, rows, 2, generator=generator) * 12
    boxes = torch.cat([corner, corner + 6 + torch.rand(images, rows, 2, generator=generator) * 12], dim=2)
    labels = torch.randint(0, CLASSES, (images, rows), generator=generator)
    valid = torch.rand(images, rows, generator=generator) < 0.8
    pixels = torch.rand(images, 3, SIDE, SIDE, generator=generator)
    return pixels, PaddedTargets(boxes * valid[..., None], labels * valid, valid)


def outcome(call, network, seed, images, rows, alpha):
    """Return every value and gradient of one step."""
    network.zero_grad()
    pixels, targets = batch(images, rows, seed)
    result = call(pixels, *GRID, targets, alpha)
    result.total.backward()
    parts = result.detection
    values = [result.total, *parts.o2m, *parts.o2o, *parts.o2m_assignment, *parts.o2o_assignment]
    return [value.detach() for value in values] + [p.grad.clone() for p in network.parameters()]


@pytest.fixture(scope="module")
def parts():
    torch.manual_seed(0)
    return Small(), build_loss("detect", CLASSES)


@pytest.fixture
def step(parts):
    step = CompiledStep(*parts, torch.device("cpu"), "eager")
    yield step
    step.close()


def native(parts):
    network, criterion = parts
    return lambda images, points, strides, targets, alpha: criterion(
        network(images), points, strides, targets, alpha
    )


def test_one_graph_has_the_native_bytes_over_alphas_and_batches_and_few_rows_have_their_own(parts, step):
    shapes = [(3, 2), (2, 3), (3, 5), (3, 2), (3, 0), (3, 1)]
    graphs = []
    for seed, (images, rows) in enumerate(shapes):
        case = (parts[0], seed, images, rows, 0.8 - 0.1 * seed)
        comparison = same_bytes(outcome(native(parts), *case), outcome(step, *case))
        assert comparison, f"{images} images, {rows} rows: {comparison}"
        graphs.append(step.graphs)
    assert graphs == [1, 1, 1, 1, 2, 3]
    assert step.launches == step.counts[Reason.REPLAYED] == len(shapes)


def test_a_step_that_cannot_be_compiled_is_native_from_then_on_and_warns_once(parts, recwarn):
    class Broken(Small):
        def forward(self, images):
            torch._dynamo.graph_break()
            return super().forward(images)

    network = Broken()
    network.load_state_dict(parts[0].state_dict())
    step = CompiledStep(network, parts[1], torch.device("cpu"), "eager")
    for seed in range(3):
        case = (seed, 3, 2, 0.8)
        assert same_bytes(outcome(native(parts), parts[0], *case), outcome(step, network, *case))
    (warned,) = (str(one.message) for one in recwarn if one.category is ReplayWarning)
    assert "natively from here on" in warned
    report = step.report()
    assert (report["retired_by"], report["replayed"]) == ("recording_failed", 0)
    assert report["native"] == {"recording_failed": 1, "retired": 2}
    assert report["cause"].startswith("Unsupported: ")


def test_an_error_of_the_step_itself_is_raised_and_ends_nothing(step):
    pixels, targets = batch(2, 2, 0)
    labels = torch.full_like(targets.labels, 9)
    with pytest.raises(ValueError, match="label 9 in image 0"):
        step(pixels, *GRID, targets._replace(labels=labels, valid=torch.ones_like(targets.valid)), 0.5)
    assert step.retired_by is None


def test_several_processes_are_native_and_counted(parts, step, monkeypatch):
    monkeypatch.setattr("lucid_train.replay.compiled.world_size", lambda: 2)
    for seed in range(2):
        outcome(step, parts[0], seed, 2, 2, 0.5)
    assert step.report()["native"] == {"unsupported": 2}
    assert step.graphs == 0


def test_a_fit_with_a_traced_step_has_the_native_fingerprint_and_traces_each_kind_of_batch_once(tmp_path):
    # two epochs of a whole, a whole and a partial batch, one of them without objects, each with a validation
    _, row = prove(tmp_path, ["detect"], ["compile_step"])
    assert row == ProofRow("detect", "compile_step", True, launches=6)
    (found,) = json.loads((tmp_path / "detect-compile_step" / "replay.json").read_text())["options"][
        "compile_step"
    ]
    assert (found["recorded"], found["replayed"], found["retired_by"]) == (2, 6, None)


def test_a_lent_step_is_in_no_copy_and_leaves_no_trace():
    module = DetectionLitModule("detect", "n", CLASSES)
    keys = list(module.state_dict())
    lend(module, None, ReplayPlan("none", ("compile_step",), TapeBackend()))
    assert module.whole_step is not None
    assert list(module.state_dict()) == keys
    assert copy.deepcopy(module).whole_step is None
    take_back(module)
    assert module.whole_step is None


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"model": {"task": "obb"}, "replay": COMPILE}, "compile_step belongs to detect"),
        ({"replay": {"compile_step": True}}, r"compile_step needs a CUDA device.*--replay-backend tape"),
        (
            {"replay": COMPILE | {"capture_network": True}},
            r"compile_step covers what replay\.capture_network",
        ),
        ({"replay": COMPILE | {"capture_loss": True}}, r"compile_step covers what replay\.capture_loss"),
        ({"replay": COMPILE, "data": {"multi_scale": 0.5}}, "compile_step records one canvas"),
    ],
)
def test_what_does_not_go_with_compiling_is_refused(sections, message):
    with pytest.raises(ConfigError, match=message):
        replay_plan(FitConfig().updated(**{"run": {"device": "cpu"}} | sections))


def test_the_whole_step_compiles_by_name_only_and_then_without_what_it_covers():
    base = {"mode": "step", "backend": "tape"}
    plans = [
        replay_plan(FitConfig().updated(replay=base | more, run={"device": "cpu"}))
        for more in ({}, {"compile_step": True})
    ]
    assert not plans[0].has("compile_step")
    assert set(plans[0].switches) - set(plans[1].switches) == {"capture_network", "capture_loss"}
    assert set(plans[1].switches) - set(plans[0].switches) == {"compile_step"}


def test_a_run_is_resumed_with_the_choice_it_began_with():
    with pytest.raises(ConfigError, match="compile_step"):
        require_same(FitConfig(), FitConfig().updated(replay={"compile_step": True}))
