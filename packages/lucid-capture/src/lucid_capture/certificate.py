"""What a recording relies on beyond its arguments, as facts that can be taken again and compared."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from operator import attrgetter
from typing import Any, Protocol

from torch import Tensor, nn

from lucid_capture._bindings import Stamp, enumerates_itself, hook_tables, scalar_facts, structure_facts
from lucid_capture.reason import Reason
from lucid_capture.signature import scalar_bits

_shape, _dtype, _device = attrgetter("shape"), attrgetter("dtype"), attrgetter("device")
_trainable = attrgetter("requires_grad")
_hooked = attrgetter("_backward_hooks")


class Certificate(Protocol):
    """The state a region reads besides its arguments, and facts about it."""

    def parameters(self) -> tuple[Tensor, ...]:
        """Return the tensors that receive gradients."""

    def buffers(self) -> tuple[Tensor, ...]:
        """Return the tensors that a run may change and that recording has to put back."""

    def facts(self) -> Mapping[Reason, Hashable]:
        """Return what must be unchanged for a recording to stand, by the reason a change would give.

        The fact HOOKS is a bool: nothing is recorded while it is true.
        """


class FunctionCertificate:
    """The certificate of a pure function: no parameters, no buffers, only constants the recording bakes in.

    ``constants`` are read through the callables at every call, so a changed gain is noticed.

    >>> FunctionCertificate(gain=lambda: 2.0).parameters()
    ()
    """

    def __init__(self, **constants: Callable[[], Any]) -> None:
        self._constants = constants

    def parameters(self) -> tuple[Tensor, ...]:
        """Return nothing: gradients reach the arguments alone."""
        return ()

    def buffers(self) -> tuple[Tensor, ...]:
        """Return nothing."""
        return ()

    def facts(self) -> Mapping[Reason, Hashable]:
        """Return the constants by name, type and bits."""
        values = {name: read() for name, read in self._constants.items()}
        return {Reason.CONTRACT: tuple((n, type(v), scalar_bits(v)) for n, v in values.items())}


class ModuleCertificate:
    """The certificate of modules: tensors by address and layout, topology, attributes, hooks, training flags.

    Tensors and hook tables are read at every call. The walk over modules and attributes is repeated only when
    something bound to a module is no longer the same object, which is cheap to see, or after `refresh`. What
    an attribute's own attributes hold is followed through lists, tuples, dicts, sets and dataclasses.

    >>> sorted(reason.name for reason in ModuleCertificate(nn.Linear(2, 1)).facts())
    ['CONTRACT', 'HOOKS', 'MODE', 'STORAGE', 'STRUCTURE', 'TRAINABLE']
    """

    def __init__(self, *modules: nn.Module) -> None:
        self._modules = modules
        self._stamp: Stamp | None = None
        self._walked: dict[Reason, Hashable] = {}
        self._tables: list[Mapping[Any, Any]] = []
        self._tensors: tuple[Tensor, ...] = ()
        self._names: tuple[str, ...] = ()
        self._buffers: tuple[Tensor, ...] = ()

    def parameters(self) -> tuple[Tensor, ...]:
        """Return the parameters and buffers that require gradients, in the modules' order."""
        self._look()
        return tuple(t for t in self._tensors if t.requires_grad)

    def buffers(self) -> tuple[Tensor, ...]:
        """Return every buffer, in the modules' order."""
        self._look()
        return self._buffers

    def facts(self) -> Mapping[Reason, Hashable]:
        """Return the facts by reason."""
        self._look()
        tensors = self._tensors
        return {
            **self._walked,
            Reason.HOOKS: any(self._tables) or any(map(_hooked, tensors)),
            Reason.TRAINABLE: (self._names, tuple(map(_trainable, tensors))),
            Reason.STORAGE: (
                self._names,
                tuple(map(id, tensors)),
                tuple(map(Tensor.data_ptr, tensors)),
                tuple(map(Tensor.stride, tensors)),
                tuple(map(_shape, tensors)),
                tuple(map(_dtype, tensors)),
                tuple(map(_device, tensors)),
                any(map(Tensor.is_neg, tensors)) or any(map(Tensor.is_conj, tensors)),
            ),
        }

    def modules(self) -> tuple[nn.Module, ...]:
        """Return every module, nested ones included."""
        return tuple(inner for m in self._modules for inner in m.modules())

    def named(self) -> dict[str, Tensor]:
        """Return parameters and buffers by name; several modules' names begin with their position."""
        many = len(self._modules) > 1
        return {
            f"{position}.{name}" if many else name: tensor
            for position, m in enumerate(self._modules)
            for name, tensor in (*m.named_parameters(), *m.named_buffers())
        }

    def refresh(self) -> None:
        """Forget the last walk; the next call takes the full one, for instance at the start of an epoch."""
        self._stamp = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stamp": None, "_walked": {}, "_tables": []}

    def _look(self) -> None:
        """Walk the modules when the last walk no longer describes them."""
        if self._stamp is not None and self._stamp.holds():
            return
        walk = [(name, module) for m in self._modules for name, module in m.named_modules()]
        modules = [module for _, module in walk]
        parameters = (p for m in self._modules for p in m.parameters())
        self._buffers = tuple(b for m in self._modules for b in m.buffers())
        self._tensors = tuple({id(t): t for t in (*parameters, *self._buffers)}.values())
        names = {id(tensor): name for name, tensor in self.named().items()}
        self._names = tuple(names.get(id(t), f"tensor {i}") for i, t in enumerate(self._tensors))
        self._tables = hook_tables(modules)
        self._walked = {
            Reason.STRUCTURE: structure_facts(walk),
            Reason.MODE: (tuple(n for n, _ in walk), tuple(module.training for module in modules)),
            Reason.CONTRACT: scalar_facts(walk),
        }
        # a module that lists its own parameters may list others next time
        self._stamp = None if enumerates_itself(modules) else Stamp(modules)


class CompositeCertificate:
    """Several certificates as one: tensors one after another, facts side by side.

    >>> parts = CompositeCertificate(ModuleCertificate(nn.Linear(2, 1)), FunctionCertificate(gain=lambda: 1.0))
    >>> len(parts.parameters())
    2
    """

    def __init__(self, *parts: Certificate) -> None:
        self._parts = parts

    def parameters(self) -> tuple[Tensor, ...]:
        """Return the parameters of every part."""
        return tuple(t for part in self._parts for t in part.parameters())

    def buffers(self) -> tuple[Tensor, ...]:
        """Return the buffers of every part."""
        return tuple(t for part in self._parts for t in part.buffers())

    def facts(self) -> Mapping[Reason, Hashable]:
        """Return each reason's facts from every part that has them."""
        merged: dict[Reason, tuple[Hashable, ...]] = {}
        for facts in (part.facts() for part in self._parts):
            for reason, fact in facts.items():
                merged[reason] = (*merged.get(reason, ()), fact)
        return {r: any(found) if r is Reason.HOOKS else found for r, found in merged.items()}

    def modules(self) -> tuple[nn.Module, ...]:
        """Return the modules of every part that has them."""
        return tuple(m for part in self._parts for m in modules_of(part))

    def refresh(self) -> None:
        """Refresh every part that keeps a walk."""
        for part in self._parts:
            refresh(part)


def refresh(certificate: Certificate) -> None:
    """Make ``certificate`` take its full walk next time, where it keeps one."""
    again = getattr(certificate, "refresh", None)
    if again is not None:
        again()


def modules_of(certificate: Certificate) -> tuple[nn.Module, ...]:
    """Return the modules through which a certificate's parameters are read, where it knows them."""
    found = getattr(certificate, "modules", None)
    return () if found is None else tuple(found())
