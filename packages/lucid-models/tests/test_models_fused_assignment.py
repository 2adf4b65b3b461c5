"""The fused passes of assignment compute the bytes of the torch expressions."""

import os
import subprocess
import sys
import warnings

import pytest
import torch

from lucid_models import AssignRule, assign_anchors, candidate_mask
from lucid_models.assign import fused

CASES = """
import math
import torch
from lucid_geometry import points_in_rboxes
from lucid_models import (
    MANY_RULE, ONE_RULE, assign_anchors, candidate_mask, make_points, rotated_candidate_mask,
)
from lucid_models.assign import tal
from lucid_models.kernels.assignment import alignment_planes, contained_points, settled_claims

DEVICE = "{device}"
g = torch.Generator().manual_seed(0)
NAN, INF = math.nan, math.inf


def rand(*shape):
    return torch.rand(*shape, generator=g)


def same(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape, (a.dtype, b.dtype, a.shape, b.shape)
    if a.dtype == torch.float32:
        if DEVICE == "cpu":  # a processor hands NaN payloads on, and torch's minimum makes one of its own
            a, b = (torch.where(t.isnan(), NAN, t) for t in (a, b))
        a, b = (t.contiguous().view(torch.int32) for t in (a, b))
    assert torch.equal(a, b), (a != b).nonzero()[:5]


points, strides = (t.to(DEVICE) for t in make_points(32, 32))
anchors = len(points)
corner = rand(2, anchors, 2) * 40
boxes = torch.cat((corner, corner + rand(2, anchors, 2) * 30 - 3), -1)
probabilities = rand(2, anchors, 5)
corner = rand(2, 4, 2) * 40
truth = torch.cat((corner, corner + 4 + rand(2, 4, 2) * 24), -1)
labels = torch.randint(0, 5, (2, 4), generator=g)
valid = torch.arange(4) < torch.tensor([4, 2])[:, None]
truth[~valid] = 0  # padding

plain = (probabilities, boxes, truth, labels)
tied = (torch.full_like(probabilities, 0.5), boxes[:, :1].expand_as(boxes), truth[:, :1].expand_as(truth), labels)
special = torch.tensor([NAN, INF, -INF, 0.0, -0.0, 1e-45, -1e-45, 1e-39, 3e-39, 1.0, 40.0, -NAN])
odd = tuple(special[torch.randint(0, len(special), t.shape, generator=g)] for t in plain[:3])
tiny = (probabilities * 1e-38, boxes * 1e-39, truth * 1e-39, labels)
small = (probabilities * 1e-44, boxes * 1e-20, truth * 1e-20, labels)
zeros = (probabilities * 0, boxes * -0.0, truth * -0.0, labels)
touching = boxes.clone()
touching[:, ::2, :2], touching[:, ::2, 2:] = -0.0, 0.0
signed = truth.clone()
signed[:, ::2, :2], signed[:, ::2, 2:] = 0.0, -0.0
negative = (probabilities, boxes, truth, labels - 3)
every = (plain, tied, (*odd, labels), tiny, small, zeros, (probabilities, touching, signed, labels), negative)
# every launch of the interpreter is slow: all cases are images of one batch
tal._rank_all = tal._rank
case = tuple(torch.cat(column).to(DEVICE) for column in zip(*every, strict=True))
for one, other in zip(alignment_planes(*case, 1e-30), tal._planes(*case, 1e-30), strict=True):
    same(one, other)
candidates = candidate_mask(points, case[2], valid.repeat(len(every), 1).to(DEVICE))
for chosen, rule in ((candidates, ONE_RULE), (torch.ones_like(candidates), MANY_RULE)):
    arguments = (*case, chosen, rule)
    for one, other in zip(assign_anchors(*arguments, fused=True), assign_anchors(*arguments), strict=True):
        same(one, other)

rboxes = torch.cat((rand(2, 4, 2) * 64, rand(2, 4, 2) * 30, (rand(2, 4, 1) - 0.5) * 9), -1)
rboxes[:, 1, 4] = 0.0
rboxes[:, 2, 2:4] = 0.0
edge = rboxes.clone()
edge[:, 0] = torch.tensor([12.0, 12.0, 16.0, 16.0, 0.0])  # points on the border
edge[0, 1:] = special[torch.randint(0, len(special), (3, 5), generator=g)]
edge[1] *= 1e-39
case, there = torch.cat((rboxes, edge, rboxes * -0.0)).to(DEVICE), valid.repeat(3, 1).to(DEVICE)
same(
    contained_points(points, case, there),
    points_in_rboxes(points, case).transpose(-1, -2) & there[..., None],
)
same(rotated_candidate_mask(points, case, there, fused=True), rotated_candidate_mask(points, case, there))

predicted = torch.cat((points.cpu().expand(2, -1, 2), rand(2, anchors, 2) * 20 + 2, rand(2, anchors, 1)), -1)
turned = tuple(t.to(DEVICE) for t in (probabilities, predicted, rboxes, labels))
inside = rotated_candidate_mask(points, turned[2], valid.to(DEVICE))
for one, other in zip(
    assign_anchors(*turned, inside, MANY_RULE, fused=True), assign_anchors(*turned, inside, MANY_RULE), strict=True
):
    same(one, other)

values = torch.tensor([0.0, 1e-45, 0.5, 0.5, 2.0, NAN, INF, -0.0])
for rows, k in ((9, 10), (1, 1), (200, 7)):
    ranked = tal.Ranked(
        torch.randint(0, 20, (2, rows, k), generator=g).to(DEVICE),
        values[torch.randint(0, len(values), (2, rows, k), generator=g)].to(DEVICE),
        rand(2, rows, k).to(DEVICE),
        (rand(2, rows, k) < 0.8).to(DEVICE),
    )
    same(settled_claims(ranked.anchor, ranked.metric, ranked.chosen, 20), tal._settled(ranked, 20))

none = torch.zeros(2, 0, 4, device=DEVICE)
empty = (turned[0], boxes.to(DEVICE), none, torch.zeros(2, 0, device=DEVICE).long())
assert [t.shape for t in alignment_planes(*empty, 1e-9)] == [(2, 0, anchors)] * 2
assert not assign_anchors(*empty, torch.zeros(2, 0, anchors, device=DEVICE) > 0, MANY_RULE, fused=True).fg_mask.any()
assert tal.ALIGNMENT.launches > 0 and tal.SETTLEMENT.launches > 0
assert tal.ALIGNMENT.natives == tal.SETTLEMENT.natives == 0
print("equal")
"""


def run(device: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", CASES.replace("{device}", device)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "equal\n", done.stderr


def test_interpreted_every_pass_gives_the_same_bytes() -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    run("cpu", TRITON_INTERPRET="1")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_device_every_pass_gives_the_same_bytes() -> None:
    run("cuda")


def scene() -> tuple[torch.Tensor, ...]:
    points = torch.rand(30, 2) * 32
    truth = torch.tensor([[[2.0, 2, 20, 20], [4, 4, 30, 30]]])
    boxes = torch.cat((points - 5, points + 5), -1)[None]
    inside = candidate_mask(points, truth, torch.ones(1, 2) > 0)
    return torch.rand(1, 30, 3), boxes, truth, torch.tensor([[0, 2]]), inside


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> dict[str, fused.FusedPass]:
    """Fresh passes without a history, in place of the package's."""
    fresh = {name: fused.FusedPass(getattr(fused, name).kernel) for name in ("ALIGNMENT", "SETTLEMENT")}
    for name, one in fresh.items():
        monkeypatch.setattr(f"lucid_models.assign.tal.{name}", one)
    return fresh


def test_where_kernels_do_not_apply_it_is_said_once_and_computed(
    passes: dict[str, fused.FusedPass], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    arguments, rule = scene(), AssignRule(topk=4)
    expected = assign_anchors(*arguments, rule)
    with pytest.warns(UserWarning, match="runs natively: it needs an NVIDIA device") as said:
        found = assign_anchors(*arguments, rule, fused=True)
    assert len(said) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assign_anchors(*arguments, rule, fused=True)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    assert [one.natives for one in passes.values()] == [2, 2]


def test_without_triton_the_extra_is_named(
    passes: dict[str, fused.FusedPass], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.warns(UserWarning, match="install lucid-models with its extra 'triton'"):
        assign_anchors(*scene(), AssignRule(topk=4), fused=True)


def test_a_pass_that_fails_at_first_is_off_and_one_that_worked_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    behaviour = {"fails": True}

    class Kernels:
        @staticmethod
        def pass_of_test(tensor: torch.Tensor) -> torch.Tensor:
            if behaviour["fails"]:
                raise RuntimeError("no such instruction")
            return tensor + 1

    monkeypatch.setattr(fused, "import_module", lambda name: Kernels)
    monkeypatch.setattr(fused, "_obstacle", lambda *_: None)
    tensor = torch.zeros(2, 2)

    def call(one: fused.FusedPass) -> float:
        return float(one(lambda: tensor - 1, (tensor,), rows=tensor).sum())

    first = fused.FusedPass("pass_of_test")
    with pytest.warns(UserWarning, match="first launch failed: no such instruction"):
        assert call(first) == -4
    behaviour["fails"] = False
    assert call(first) == -4
    second = fused.FusedPass("pass_of_test")
    assert call(second) == 4
    behaviour["fails"] = True
    with pytest.raises(RuntimeError, match="no such instruction"):
        call(second)


def test_nan_ties_whatever_its_payload() -> None:
    nan = torch.tensor([0x7FC00000, 0x7FFFFFFF, 0x7F800123], dtype=torch.int32).view(torch.float32)
    probabilities = nan[[0, 1, 2, 1]].view(1, 4, 1)
    boxes = torch.tensor([0.0, 0, 8, 8]).expand(1, 4, 4)
    truth, labels = boxes[:, :2], torch.zeros(1, 2).long()
    found = assign_anchors(probabilities, boxes, truth, labels, torch.ones(1, 2, 4) > 0, AssignRule(topk=3))
    assert found.gt_index.tolist() == [[0, 0, 0, -1]]


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (torch.zeros(1, 1, dtype=torch.float64), "it does not handle torch.float64"),
        (torch.nn.Parameter(torch.zeros(1, 1)), "a tensor is of a subclass"),
        (torch.zeros(1, 70000), "the tensors exceed the grid"),
    ],
)
def test_what_the_kernels_do_not_handle_stays_native(
    tensor: torch.Tensor, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert fused._obstacle((tensor,), tensor) == reason
