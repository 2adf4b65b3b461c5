"""The engines that compute COCO's protocol: pycocotools, the reference, and a faster one with the same numbers."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class Engine:
    """Where an engine's two classes are: the index of a document, and the evaluation of two of those."""

    index: Callable[..., Any]
    evaluation: Callable[..., Any]


_PLACES = MappingProxyType(
    {
        "pycocotools": ("pycocotools.coco:COCO", "pycocotools.cocoeval:COCOeval"),
        "faster": ("faster_coco_eval:COCO", "faster_coco_eval:COCOeval_faster"),
    }
)


def load_engine(name: str) -> Engine:
    """Return an engine by name; ValueError for an unknown one, ImportError for one that is not installed.

    >>> load_engine("slow")
    Traceback (most recent call last):
    ValueError: unknown engine 'slow'; choose one of pycocotools, faster
    """
    if name not in _PLACES:
        raise ValueError(f"unknown engine {name!r}; choose one of {', '.join(_PLACES)}")
    try:
        return Engine(*(_attribute(place) for place in _PLACES[name]))
    except ModuleNotFoundError as error:
        raise ImportError(
            f"engine {name!r} needs {error.name}; install lucid-data with its extra 'fast-eval'"
        ) from error


@contextmanager
def silent() -> Iterator[None]:
    """Keep an engine's progress off the terminal and out of the log; its logger is as before afterwards.

    The faster engine also warns that an annotation with id 0 counts as unmatched, which the reference does unsaid.
    """
    logger = logging.getLogger("faster_coco_eval")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        with redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Found annotation id 0", UserWarning)
            yield
    finally:
        logger.setLevel(level)


def _attribute(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
