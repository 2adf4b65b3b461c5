"""No hazard and no reason without a test that produces it and a mutant that removes its guard."""

import importlib.util
from enum import Enum
from pathlib import Path
from types import ModuleType

import pytest

from lucid_capture import POLICY, Hazard, Reason


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    path = Path(__file__).with_name("hazard_table.py")
    spec = importlib.util.spec_from_file_location("hazard_table", path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.mark.parametrize("member", [*Hazard, *Reason], ids=str)
@pytest.mark.parametrize("role", ["test", "mutant"])
def test_every_member_has_a_test_and_a_mutant(tables: ModuleType, member: Enum, role: str) -> None:
    assert tables.functions(member, role), f"{member} has no {role}"


def test_every_reason_leads_to_something() -> None:
    assert set(POLICY) == set(Reason)


def test_the_page_shows_the_table_as_it_is(tables: ModuleType) -> None:
    if not tables.PAGE.exists():
        pytest.skip("the pages are not part of this installation")
    text = tables.PAGE.read_text(encoding="utf-8")
    assert tables.page(text) == text, "run packages/lucid-capture/tests/hazard_table.py"
