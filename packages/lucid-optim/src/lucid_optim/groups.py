"""Parameter groups by name and by kind of layer, with the reason of each."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args

from torch import Tensor, nn

Kind = Literal["one_column", "depthwise", "first_conv", "head"]

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


@dataclass(frozen=True)
class _KindRow:
    """A kind of matrix that may take the SGD rule: why, its settings, and which weights are of it."""

    why: str
    settings: Mapping[str, float]
    weights: Callable[[nn.Module], Collection[Tensor]]


def _one_column(model: nn.Module) -> list[Tensor]:
    return [p for p in model.parameters() if p.dim() >= 2 and p.numel() in p.shape]


def _depthwise(model: nn.Module) -> list[Tensor]:
    # a kernel of one channel per group has no second axis to orthogonalise but its window
    convolutions = (m for m in model.modules() if isinstance(m, _CONVOLUTIONS))
    return [m.weight for m in convolutions if m.groups > 1 and m.groups == m.in_channels]


def _first_conv(model: nn.Module) -> list[Tensor]:
    return [m.weight for m in model.modules() if isinstance(m, _CONVOLUTIONS)][:1]


def _head(model: nn.Module) -> list[Tensor]:
    layers = [m.weight for m in model.modules() if isinstance(m, (*_CONVOLUTIONS, nn.Linear))]
    return layers[-1:]


_SGD = {"w_muon": 0.0, "w_sgd": 1.0}
_KINDS: Mapping[Kind, _KindRow] = {
    "one_column": _KindRow(
        "a matrix of one row or column is a vector", {**_SGD, "weight_decay": 0.0}, _one_column
    ),
    "depthwise": _KindRow("depthwise kernel", _SGD, _depthwise),
    "first_conv": _KindRow("first convolution", _SGD, _first_conv),
    "head": _KindRow("last linear layer or convolution", _SGD, _head),
}


def param_groups(
    model: nn.Module,
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    sgd: Collection[Kind] = (),
) -> list[dict[str, Any]]:
    """Return optimizer groups that cover every parameter of ``model`` once, each parameter with its name.

    The rule a parameter gets (matrix or vector) follows its rank alone, as in the paper, so without options
    there is one group, ``default``.

    ``overrides`` maps a shell-style pattern on full parameter names to settings (``{"head.*": {"lr":
    1e-3}}``); the first pattern that matches wins, and each pattern becomes a group named by it.

    ``sgd`` names kinds of matrices that take a plain SGD step with decoupled decay instead of the blend,
    where no pattern matches: ``depthwise`` kernels, the ``first_conv``, the ``head`` (the last linear layer
    or convolution in the order of registration; give several heads a pattern), and ``one_column`` for those
    of one row or column, such as a (C, 1, 1) layer scale, which is then not decayed either. Each becomes a
    group named by it, with the reason as ``why``; a weight of two kinds is in the first named.

    Raises ValueError for a pattern that matches no parameter and for an unknown kind.

    >>> model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    >>> [(g["name"], len(g["params"])) for g in param_groups(model, {"0.*": {"lr": 0.1}}, sgd=["head"])]
    [('0.*', 2), ('head', 1), ('default', 1)]
    """
    for kind in sgd:
        if kind not in _KINDS:
            raise ValueError(f"sgd takes the kinds {get_args(Kind)}, got {kind!r}")
    table = dict(overrides or {})
    kind_of = {id(w): kind for kind in reversed(list(sgd)) for w in _KINDS[kind].weights(model)}
    by_pattern: dict[str, list[tuple[str, nn.Parameter]]] = {pattern: [] for pattern in table}
    by_kind: dict[Kind, list[tuple[str, nn.Parameter]]] = {kind: [] for kind in sgd}
    others: list[tuple[str, nn.Parameter]] = []
    for entry in model.named_parameters():
        name, parameter = entry
        pattern = next((p for p in table if fnmatchcase(name, p)), None)
        if pattern is not None:
            by_pattern[pattern].append(entry)
        elif id(parameter) in kind_of:
            by_kind[kind_of[id(parameter)]].append(entry)
        else:
            others.append(entry)
    for pattern, members in by_pattern.items():
        if not members:
            raise ValueError(
                f"override pattern {pattern!r} comes first for no parameter; see model.named_parameters()"
            )
    groups: list[dict[str, Any]] = [{"params": by_pattern[p], "name": p, **table[p]} for p in table]
    for kind, members in by_kind.items():
        if members:
            row = _KINDS[kind]
            groups.append({"params": members, "name": kind, "why": row.why, **row.settings})
    if others:
        groups.append({"params": others, "name": "default"})
    return groups
