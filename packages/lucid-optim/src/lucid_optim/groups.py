"""Parameter groups by name, and a table that says which parameter gets which rule."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from torch import nn


def param_groups(
    model: nn.Module, overrides: Mapping[str, Mapping[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """Return optimizer groups that cover every parameter of ``model`` once, each parameter with its name.

    ``overrides`` maps a shell-style pattern on full parameter names to settings (``{"head.*": {"lr":
    1e-3}}``); the first pattern that matches wins, and each pattern becomes a group named by it, before the
    group ``default``. The rule a parameter gets (matrix or vector) follows its rank, so groups are needed
    for settings alone. Raises ValueError for a pattern that matches no parameter.

    >>> model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    >>> [(g["name"], len(g["params"])) for g in param_groups(model, {"1.*": {"lr": 0.1}})]
    [('1.*', 2), ('default', 2)]
    """
    table = dict(overrides or {})
    members: dict[str | None, list[tuple[str, nn.Parameter]]] = {pattern: [] for pattern in (*table, None)}
    for name, parameter in model.named_parameters():
        members[next((p for p in table if fnmatchcase(name, p)), None)].append((name, parameter))
    for pattern in table:
        if not members[pattern]:
            raise ValueError(
                f"override pattern {pattern!r} comes first for no parameter; see model.named_parameters()"
            )
    groups: list[dict[str, Any]] = [{"params": members[p], "name": p, **table[p]} for p in table]
    if members[None]:
        groups.append({"params": members[None], "name": "default"})
    return groups


def explain(groups: Iterable[Mapping[str, Any]]) -> str:
    """Return a table of how many tensors and elements of each group get the matrix and the vector rule.

    Takes what `param_groups` returns or an optimizer's ``param_groups``; settings are shown where a group
    has them.

    >>> print(explain(param_groups(nn.Linear(4, 3))))
    group    rule    tensors  elements  settings
    default  matrix        1        12
    default  vector        1         3
    """
    rows = [("group", "rule", "tensors", "elements", "settings")]
    for index, group in enumerate(groups):
        parameters = [entry[1] if isinstance(entry, tuple) else entry for entry in group["params"]]
        hidden = ("params", "param_names", "name")
        settings = ", ".join(f"{key}={value}" for key, value in group.items() if key not in hidden)
        for rule, chosen in (
            ("matrix", [p for p in parameters if p.dim() >= 2]),
            ("vector", [p for p in parameters if p.dim() < 2]),
        ):
            if chosen:
                size = f"{sum(p.numel() for p in chosen):,}"
                rows.append((str(group.get("name", index)), rule, str(len(chosen)), size, settings))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = (
        f"{g:<{widths[0]}}  {rule:<{widths[1]}}  {tensors:>{widths[2]}}  {elements:>{widths[3]}}  {settings}"
        for g, rule, tensors, elements, settings in rows
    )
    return "\n".join(line.rstrip() for line in lines)
