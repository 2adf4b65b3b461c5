import doctest
import importlib
import pkgutil

import pytest

import lucid_data
from lucid_data import synthetic

MODULES = sorted(
    {lucid_data.__name__, *(m.name for m in pkgutil.walk_packages(lucid_data.__path__, "lucid_data."))}
)


@pytest.fixture
def scenes(tmp_path, monkeypatch):
    """The working folder of the examples, with a data set in ``scenes``."""
    monkeypatch.chdir(tmp_path)
    synthetic.write_coco("scenes", splits={"train": 4, "val": 2}, size=64)


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.usefixtures("scenes")
def test_the_examples_of_a_module_run(name):
    if name.startswith("lucid_data.kernels."):
        library = name.rpartition(".")[2].removesuffix("_hsv")
        pytest.importorskip(library, reason=f"{library} is not installed")
    failures, _ = doctest.testmod(importlib.import_module(name))
    assert failures == 0


def test_public_functions_and_classes_say_what_they_return():
    for name in lucid_data.__all__:
        item = getattr(lucid_data, name)
        if isinstance(item, type) or (callable(item) and hasattr(item, "__module__")):
            assert (
                name in ("EvalLoader", "Task", "Layout", "Format", "Pictures", "DotaVersion") or item.__doc__
            ), name
