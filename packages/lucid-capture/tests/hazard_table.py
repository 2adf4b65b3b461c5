"""Prints which test produces each hazard and each reason, and which mutant removes its guard.

``python packages/lucid-capture/tests/hazard_table.py`` writes the table into docs/hazards.md.
"""

import ast
import functools
from enum import Enum
from pathlib import Path

from lucid_capture import POLICY, Hazard, Reason

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "hazards.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
ROLES = {"checks": "test", "produces": "test", "mutant": "mutant"}


@functools.cache
def found() -> list[tuple[str, str, str]]:
    """Return (member such as ``Hazard.H3``, role, function) for every registered function of the tests."""
    rows = []
    for name in ("test_hazards.py", "test_region_reasons.py"):
        for node in ast.walk(ast.parse((TESTS / name).read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef):
                continue
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) in ROLES:
                    for argument in decorator.args:
                        role = ROLES[ast.unparse(decorator.func)]
                        rows.append((ast.unparse(argument), role, node.name))
    return rows


def functions(member: Enum, role: str) -> list[str]:
    """Return the registered functions of one role for a hazard or a reason."""
    return [function for key, kind, function in found() if (key, kind) == (str(member), role)]


def words(names: list[str]) -> str:
    return ", ".join(name.strip("_").replace("_", " ") for name in names) or "none"


def table() -> str:
    """Return the two tables in Markdown."""
    lines = ["| id | hazard | left alone | handled by | test | mutant |", "|---|---|---|---|---|---|"]
    for h in Hazard:
        test, mutant = words(functions(h, "test")), words(functions(h, "mutant"))
        lines.append(f"| {h.name} | {h.title} | {h.consequence} | {h.handling} | {test} | {mutant} |")
    lines += ["", "| reason | meaning | leads to | test | mutant |", "|---|---|---|---|---|"]
    for r in Reason:
        test, mutant = words(functions(r, "test")), words(functions(r, "mutant"))
        lines.append(f"| `{r.name}` | {r.value} | {POLICY[r].value} | {test} | {mutant} |")
    return "\n".join(lines)


def page(text: str) -> str:
    """Return the docs page with the table in its place."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(table())
