"""What a module's certificate notices, and that it walks again only when it has to."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lucid_capture import (
    CompositeCertificate,
    FunctionCertificate,
    GuardedRegion,
    ModuleCertificate,
    Reason,
    ReplayWarning,
    TapeBackend,
)


@dataclass
class Options:
    """Settings that a module keeps in an object."""

    gain: float = 1.0


class Host(nn.Module):
    """A module with attributes of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 2), nn.Dropout(0.1)])
        self.scale, self.flag, self.name = 0.0, True, "host"
        self.strides, self.options = [8, 16], Options()
        self.names = {"a": 1}
        self.cache = torch.ones(2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers[0](x)


def set_scale(net: Host) -> None:
    net.scale = -0.0


def set_flag(net: Host) -> None:
    net.flag = 1  # type: ignore[assignment]


def set_item(net: Host) -> None:
    net.strides[0] = 4


def add_item(net: Host) -> None:
    net.strides.append(32)


def set_key(net: Host) -> None:
    net.names["b"] = 2


def set_option(net: Host) -> None:
    net.options.gain = 2.0


def set_rate_of_a_child(net: Host) -> None:
    net.layers[1].p = 0.5


def new_attribute(net: Host) -> None:
    net.extra = 3


def renamed_attribute(net: Host) -> None:
    net.other = net.__dict__.pop("cache")


CONTRACT: list[Callable[[Host], None]] = [
    set_scale,
    set_flag,
    set_item,
    add_item,
    set_key,
    set_option,
    set_rate_of_a_child,
    new_attribute,
]


def new_child(net: Host) -> None:
    net.layers.append(nn.Identity())


def another_child(net: Host) -> None:
    net.layers[0] = nn.Linear(2, 2)


def another_cache(net: Host) -> None:
    net.cache = torch.ones(2)


def own_forward(net: Host) -> None:
    net.layers[0].forward = lambda x: x  # type: ignore[method-assign]


def forward_of_the_class(net: Host) -> None:
    type(net).forward = lambda self, x: x  # type: ignore[assignment,method-assign]


STRUCTURE: list[Callable[[Host], None]] = [
    new_child,
    another_child,
    another_cache,
    own_forward,
    renamed_attribute,
    forward_of_the_class,
]


def new_data(net: Host) -> None:
    net.layers[0].weight.data = torch.ones(2, 2)


def new_parameter(net: Host) -> None:
    net.layers[0].bias = nn.Parameter(torch.zeros(2))


def another_layout(net: Host) -> None:
    net.layers[0].weight.data = net.layers[0].weight.data.t()


def assigned_state(net: Host) -> None:
    net.load_state_dict({k: v.clone() for k, v in net.state_dict().items()}, assign=True)


STORAGE: list[Callable[[Host], None]] = [new_data, new_parameter, another_layout, assigned_state]


def frozen(net: Host) -> None:
    net.layers[0].bias.requires_grad_(False)


def evaluated(net: Host) -> None:
    net.layers[1].eval()


def forward_hook(net: Host) -> None:
    net.layers[0].register_forward_pre_hook(lambda *a: None)


def backward_hook(net: Host) -> None:
    net.register_full_backward_hook(lambda *a: None)


def tensor_hook(net: Host) -> None:
    net.layers[0].weight.register_hook(lambda grad: None)


NOTICED: list[tuple[Reason, Callable[[Host], None]]] = [
    *((Reason.CONTRACT, change) for change in CONTRACT),
    *((Reason.STRUCTURE, change) for change in STRUCTURE),
    *((Reason.STORAGE, change) for change in STORAGE),
    (Reason.TRAINABLE, frozen),
    (Reason.MODE, evaluated),
    *((Reason.HOOKS, change) for change in (forward_hook, backward_hook, tensor_hook)),
]


@pytest.mark.parametrize(("reason", "change"), NOTICED, ids=lambda x: getattr(x, "__name__", ""))
def test_a_change_is_noticed_under_its_reason(
    reason: Reason, change: Callable[[Host], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Host, "forward", Host.forward)
    net = Host()
    certificate = ModuleCertificate(net)
    before = certificate.facts()
    assert certificate.facts() == before
    change(net)
    assert certificate.facts()[reason] != before[reason]


def counted_walks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    walks: list[int] = []
    certificate = sys.modules["lucid_capture.certificate"]
    original = certificate.structure_facts

    def counting(walk: Any) -> Any:
        walks.append(1)
        return original(walk)

    monkeypatch.setattr(certificate, "structure_facts", counting)
    return walks


def test_the_walk_is_taken_once_while_nothing_is_rebound(monkeypatch: pytest.MonkeyPatch) -> None:
    walks, net = counted_walks(monkeypatch), Host()
    certificate = ModuleCertificate(net)
    for _ in range(5):
        certificate.facts()
        with torch.no_grad():
            net.layers[0].weight.add_(1)
    assert len(walks) == 1
    certificate.refresh()
    certificate.facts()
    assert len(walks) == 2


def test_an_equal_value_in_a_new_object_costs_a_walk_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    walks, net = counted_walks(monkeypatch), Host()
    certificate = ModuleCertificate(net)
    before = certificate.facts()
    net.strides = [8, 16]
    assert certificate.facts() == before
    assert len(walks) == 2
    # the new list is the one watched from now on
    net.strides[1] = 17
    assert certificate.facts() != before


def test_without_the_stamp_a_change_would_be_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Host()
    certificate = ModuleCertificate(net)
    before = certificate.facts()
    monkeypatch.setattr(sys.modules["lucid_capture._bindings"].Stamp, "holds", lambda self: True)
    net.scale = 5.0
    assert certificate.facts() == before
    certificate.refresh()
    assert certificate.facts() != before


def test_debug_walks_at_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    walks, net = counted_walks(monkeypatch), Host()
    options: dict[str, Any] = {"backend": TapeBackend(), "differentiable": True, "record_after": 0}
    plain = GuardedRegion("net", net, certificate=ModuleCertificate(net), **options)
    debug = GuardedRegion("net", net, certificate=ModuleCertificate(net), debug=True, **options)
    taken = []
    for region in (plain, debug):
        walks.clear()
        for _ in range(4):
            region(torch.ones(1, 2)).sum().backward()
        taken.append(len(walks))
    assert taken[0] == 1
    assert taken[1] >= 4


def test_a_module_that_lists_its_own_parameters_is_asked_each_time() -> None:
    class Chosen(Host):
        wanted = True

        def parameters(self, recurse: bool = True) -> Any:
            return (p for p in super().parameters(recurse) if type(self).wanted or p.dim() > 1)

    net = Chosen()
    certificate = ModuleCertificate(net)
    assert len(certificate.parameters()) == 2
    Chosen.wanted = False
    assert len(certificate.parameters()) == 1


def test_a_buffer_that_requires_a_gradient_receives_it() -> None:
    class Learned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("offset", torch.zeros(2, requires_grad=True))

        def forward(self, x: Tensor) -> Tensor:
            return x * 2 + self.offset * 3

    net = Learned()
    region = GuardedRegion(
        "net",
        net,
        backend=TapeBackend(),
        certificate=ModuleCertificate(net),
        differentiable=True,
        record_after=0,
    )
    for _ in range(2):
        net.offset.grad = None
        region(torch.ones(2)).sum().backward()
        assert net.offset.grad.tolist() == [3.0, 3.0]


def test_parts_are_put_side_by_side() -> None:
    gain, net = [1.0], Host()
    both = CompositeCertificate(ModuleCertificate(net), FunctionCertificate(gain=lambda: gain[0]))
    before = both.facts()
    assert (len(both.parameters()), before[Reason.HOOKS]) == (2, False)
    gain[0] = 2.0
    assert both.facts()[Reason.CONTRACT] != before[Reason.CONTRACT]
    changed = both.facts()
    net.scale = 9.0
    both.refresh()
    assert both.facts()[Reason.CONTRACT] != changed[Reason.CONTRACT]
    net.register_forward_hook(lambda *a: None)
    assert both.facts()[Reason.HOOKS] is True


def test_names_tell_several_modules_apart() -> None:
    assert set(ModuleCertificate(nn.Linear(1, 1)).named()) == {"weight", "bias"}
    assert "1.weight" in ModuleCertificate(nn.Linear(1, 1), nn.Linear(1, 1)).named()


def test_overlapping_parameters_are_not_recorded() -> None:
    net = nn.Linear(2, 2)
    net.bias = nn.Parameter(net.weight.detach()[0])
    region = GuardedRegion(
        "net",
        net,
        backend=TapeBackend(),
        certificate=ModuleCertificate(net),
        differentiable=True,
        record_after=0,
    )
    region(torch.ones(1, 2)).sum().backward()
    assert region.counts == {Reason.ALIASED: 1}


def unfreeze_gain(net: Host) -> None:
    net.options.gain = 9.0


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (new_data, "layers.0.weight"),
        (frozen, "layers.0.bias"),
        (set_rate_of_a_child, "layers.1.p"),
        (set_item, "strides.0"),
        (unfreeze_gain, "options.gain"),
        (own_forward, "layers.0"),
        (another_cache, "cache"),
    ],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_the_warning_names_what_changed(change: Callable[[Host], None], named: str) -> None:
    net = Host()
    region = GuardedRegion(
        "net",
        net,
        backend=TapeBackend(),
        certificate=ModuleCertificate(net),
        differentiable=True,
        record_after=0,
    )
    region(torch.ones(1, 2)).sum().backward()
    change(net)
    with pytest.warns(ReplayWarning, match=rf"\({named}\)"):
        region(torch.ones(1, 2))
