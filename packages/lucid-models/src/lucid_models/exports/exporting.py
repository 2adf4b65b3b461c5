"""From a detector to a file that runs without this package."""

import os
from os import PathLike, fspath
from pathlib import Path

import torch

from lucid_models.detector import Detector
from lucid_models.exports.formats import FORMATS
from lucid_models.exports.graph import ExportGraph
from lucid_models.exports.info import export_info
from lucid_models.loading import load
from lucid_models.registry import look_up


def export(
    detector: Detector | str | PathLike[str],
    path: str | PathLike[str],
    format: str = "onnx",
    *,
    image_size: int | None = None,
    batch: int | None = None,
    max_detections: int = 300,
) -> Path:
    """Write the deployed graph of a detector, or of the checkpoint at that path, and return where.

    The graph is folded, holds the one-to-one branch alone and selects its ``max_detections`` rows itself;
    nothing is left for a suppression to do. ``format`` is "onnx", "torchscript", "exported-program" (of
    torch.export) or "safetensors" (weights alone). It takes float32 canvases (B, 3, S, S) in [0, 1] with
    S = ``image_size``, by default the detector's own, and B = ``batch``, by default any. The file carries an
    `ExportInfo`; it appears by rename when it is complete. Raises ValueError for an unknown format, a size
    that is no positive multiple of 32 or a count below 1, ImportError where the format's extra is not
    installed, and what `load` raises.

    >>> import tempfile
    >>> from lucid_models import build_detector
    >>> detector = build_detector("detect", "n", names=["a"], image_size=64)
    >>> export(detector, f"{tempfile.mkdtemp()}/a.torchscript", "torchscript").name
    'a.torchscript'
    """
    row = look_up(FORMATS, "format", format)
    for name, value in (("batch", batch), ("max_detections", max_detections)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    row.require(row.writers)
    source = detector if isinstance(detector, Detector) else load(detector)
    side = source.image_size if image_size is None else image_size
    graph = ExportGraph(source, side, max_detections).eval()
    info = export_info(source, side, max_detections, batch)
    target = Path(fspath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"no folder {target.parent} to write {target.name} to")
    # beside the target, so that the rename stays inside one file system
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with torch.no_grad():
            row.write(graph, info, str(partial))
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    return target
