"""What each guard of a replayed step is for: without it, results differ from native ones or replay is lost."""

import copy
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lucid_capture import Reason, TapeBackend, same_bytes
from lucid_optim import MuSGD
from lucid_optim import replay as replay_module
from lucid_optim.replay import UpdateCertificate

Facts = Mapping[Reason, Hashable]
Change = Callable[[UpdateCertificate, Facts], Facts]
Event = Callable[[list[nn.Parameter], MuSGD], None]

TAKE_FACTS = UpdateCertificate.facts


def trained(events: dict[int, Event], steps: int = 5, **options: Any) -> tuple[list[Any], MuSGD]:
    """Weights and buffers after steps, before some of which an event happens; and the optimizer."""
    g = torch.Generator().manual_seed(0)
    ps = [nn.Parameter(torch.randn(s, generator=g)) for s in ((4, 6), (3, 3), (5,))]
    if any(name.startswith("capture") for name in options):
        options["backend"] = TapeBackend()
    optimizer = MuSGD(ps, lr=0.1, **options)
    for step in range(steps):
        for p in ps:
            p.grad = torch.randn(p.shape, generator=g)
        events.get(step, lambda *_: None)(ps, optimizer)
        optimizer.step()
    return [[p.detach() for p in ps], [optimizer.state[p]["momentum_buffer"] for p in ps]], optimizer


def setting(name: str, value: Any) -> Event:
    return lambda ps, optimizer: optimizer.param_groups[0].update({name: value})


def move_storage(ps: list[nn.Parameter], optimizer: MuSGD) -> None:
    ps[0].data = ps[0].data + 1


def minus_zero_momentum_and_gradients(ps: list[nn.Parameter], optimizer: MuSGD) -> None:
    optimizer.param_groups[0]["momentum"] = -0.0
    for p in ps:
        p.grad = -torch.zeros_like(p)


def without(reason: Reason) -> Change:
    return lambda certificate, facts: {r: f for r, f in facts.items() if r is not reason}


def by_value(certificate: UpdateCertificate, facts: Facts) -> Facts:
    """Settings compared as numbers, so that 5 equals 5.0 and 0.0 equals -0.0."""
    settings = certificate._read()[2]
    return {**facts, Reason.CONTRACT: tuple(settings[name] for name in replay_module._SCALARS)}


def weaken(monkeypatch: pytest.MonkeyPatch, change: Change) -> None:
    monkeypatch.setattr(UpdateCertificate, "facts", lambda self: change(self, TAKE_FACTS(self)))


CASES: dict[str, tuple[Change, dict[int, Event], dict[str, Any]]] = {
    "momentum": (without(Reason.CONTRACT), {3: setting("momentum", 0.5)}, {}),
    "decay": (without(Reason.CONTRACT), {3: setting("weight_decay", 0.5)}, {}),
    "gain": (without(Reason.CONTRACT), {3: setting("w_muon", 0.1)}, {}),
    "preset": (without(Reason.CONTRACT), {3: setting("ns_preset", "classic")}, {}),
    "storage": (without(Reason.STORAGE), {3: move_storage}, {}),
    "the sign of zero": (by_value, {4: minus_zero_momentum_and_gradients}, {"momentum": 0.0}),
}


@pytest.mark.parametrize("case", list(CASES))
def test_without_a_fact_of_the_certificate_bytes_differ_and_with_it_they_do_not(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, events, options = CASES[case]
    native, _ = trained(events, **options)
    guarded, _ = trained(events, **options, capture_updates=True)
    weaken(monkeypatch, change)
    mutant, _ = trained(events, **options, capture_updates=True)
    assert same_bytes(native, guarded)
    assert not same_bytes(native, mutant)


def test_compared_as_numbers_a_fraction_of_a_step_would_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    events = {3: setting("ns_steps", 5.0)}
    with pytest.raises(TypeError):
        trained(events, capture_updates=True)
    weaken(monkeypatch, by_value)
    trained(events, capture_updates=True)


def test_with_the_rate_among_the_facts_a_schedule_would_end_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    events = {step: setting("lr", 0.1 / step) for step in range(1, 6)}
    _, optimizer = trained(events, steps=6, capture_updates=True)
    assert optimizer.regions[0].counts[Reason.REPLAYED] == 4
    monkeypatch.setattr(replay_module, "_SCALARS", (*replay_module._SCALARS, "lr"))
    _, optimizer = trained(events, steps=6, capture_updates=True)
    assert optimizer.regions[0].counts[Reason.REPLAYED] == 0


def test_without_context_in_the_key_another_precision_finds_no_recording_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def precision(name: str) -> Event:
        def change(ps: list[nn.Parameter], optimizer: MuSGD) -> None:
            optimizer.regions[0].capacity = 4
            torch.set_float32_matmul_precision(name)

        return change

    events = {2: precision("high"), 4: precision("highest")}
    _, optimizer = trained(events, capture_orthogonalization=True)
    assert optimizer.regions[0].counts[Reason.RECORDED] == 4
    monkeypatch.setattr(replay_module, "_context", lambda region: "")
    _, optimizer = trained(events, capture_orthogonalization=True)
    assert optimizer.regions[0].counts[Reason.RECORDED] == 2
    assert optimizer.regions[0].counts[Reason.PRECISION] == 4


def overlapping(**options: Any) -> Tensor:
    flat = torch.arange(24.0)
    ps = [nn.Parameter(flat[:16].view(4, 4)), nn.Parameter(flat[8:].view(4, 4))]
    for p in ps:
        p.grad = torch.ones(4, 4)
    MuSGD(ps, lr=0.1, weight_decay=0.5, **options).step()
    return flat


def test_without_the_overlap_check_overlapping_parameters_get_other_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    defined = overlapping(batched=False)
    assert same_bytes(overlapping(), defined)
    monkeypatch.setattr("lucid_optim.musgd.independent", lambda tensors: True)
    assert not same_bytes(overlapping(), defined)


def test_always_native_is_noticed_by_the_count_of_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    _, optimizer = trained({}, capture_updates=True)
    assert optimizer.regions[0].launches.forward == 4
    monkeypatch.setattr(MuSGD, "_usable_region", lambda *_: None)
    _, optimizer = trained({}, capture_updates=True)
    assert optimizer.regions[0].launches.forward == 0


def test_a_copy_that_carried_its_back_end_would_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    _, optimizer = trained({}, capture_updates=True)
    assert copy.deepcopy(optimizer).regions == ()
    monkeypatch.setattr(MuSGD, "__getstate__", lambda self: dict(self.__dict__))
    assert copy.deepcopy(optimizer).regions != ()
