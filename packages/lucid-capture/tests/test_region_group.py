import copy
import gc
import pickle

import pytest
import torch
from torch import nn

from lucid_capture import GuardedRegion, ModuleCertificate, RegionGroup, State, TapeBackend


class Trainer:
    """Whatever drives a run."""


def recorded() -> GuardedRegion:
    net = nn.Linear(2, 1)
    region = GuardedRegion(
        "net",
        net,
        backend=TapeBackend(),
        certificate=ModuleCertificate(net),
        differentiable=True,
        record_after=0,
    )
    region(torch.ones(1, 2)).sum().backward()
    return region


def test_regions_end_with_the_run() -> None:
    with RegionGroup() as group:
        region = group.add(recorded())
        assert region.owned_bytes() > 0
    assert (region.state, region.owned_bytes()) == (State.CLOSED, 0)


def test_regions_end_with_a_failing_run_and_its_error_is_the_one_raised() -> None:
    group = RegionGroup()
    first, second = group.add(recorded()), group.add(recorded())
    first.drop = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    with pytest.raises(RuntimeError, match="diverged"), group:
        raise RuntimeError("the loss diverged")
    assert second.state is State.CLOSED


def test_a_region_that_cannot_be_closed_is_told_when_nothing_else_failed() -> None:
    group = RegionGroup()
    group.add(recorded()).drop = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    other = group.add(recorded())
    with pytest.raises(ZeroDivisionError), group:
        pass
    assert other.state is State.CLOSED


def test_the_owner_is_referred_to_weakly() -> None:
    trainer, other = Trainer(), Trainer()
    group = RegionGroup(trainer)
    assert group.belongs_to(trainer)
    assert not group.belongs_to(other)
    del trainer
    gc.collect()
    assert not group.belongs_to(other)


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_and_pickles_carry_no_recording_and_no_owner(clone) -> None:  # type: ignore[no-untyped-def]
    trainer = Trainer()
    group = RegionGroup(trainer)
    group.add(recorded())
    twin = clone(group)
    (region,) = twin
    assert (region.state, region.owned_bytes(), twin.belongs_to(trainer)) == (State.IDLE, 0, False)
    assert region(torch.ones(1, 2)).shape == (1, 1)


def test_a_new_batch_gives_up_the_backward_pass_that_was_skipped() -> None:
    group = RegionGroup()
    region = group.add(recorded())
    skipped = region(torch.ones(1, 2))
    assert region.state is State.HELD
    group.begin_batch()
    assert region.state is State.ACTIVE
    assert skipped.shape == (1, 1)


def test_the_report_covers_every_region() -> None:
    group = RegionGroup()
    group.add(recorded())
    group.add(GuardedRegion("other", lambda x: x))
    assert [r.name for r in group.report().regions] == ["net", "other"]
    group.drop()
    assert [r.owned_bytes for r in group.report().regions] == [0, 0]
