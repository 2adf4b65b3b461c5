"""Every docstring example runs."""

import doctest
import importlib
import pkgutil

import pytest

import lucid_models

MODULES = ["lucid_models"] + [
    module.name for module in pkgutil.walk_packages(lucid_models.__path__, "lucid_models.")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_module(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("name", lucid_models.__all__)
def test_public_names_exist_and_functions_carry_an_example(name: str) -> None:
    value = getattr(lucid_models, name)
    if callable(value) and not isinstance(value, type) and name != "describe":
        assert ">>>" in (value.__doc__ or "")
