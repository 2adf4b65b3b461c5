import doctest
import importlib
import pkgutil

import pytest

import lucid_capture

MODULES = sorted(info.name for info in pkgutil.iter_modules(lucid_capture.__path__, "lucid_capture."))


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_the_docstrings_run(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0
