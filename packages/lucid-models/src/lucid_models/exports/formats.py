"""The four file formats: how each is written and read, one row per format."""

import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from lucid_models.detector import build_detector
from lucid_models.exports.graph import ExportGraph
from lucid_models.exports.info import KEY, ExportInfo

ONNX_OPSET = 18
"""The oldest one that torch's exporter writes, for the sake of older runtimes."""

Run = Callable[[Tensor], tuple[Tensor, ...]]
_EXTRA = f"{KEY}.json"
_JIT: Any = torch.jit  # it has no types


@dataclass(frozen=True)
class Format:
    """One format: its file suffix, the modules it is written and read with, and the functions that do so."""

    name: str
    suffix: str
    writers: tuple[str, ...]
    readers: tuple[str, ...]
    write: Callable[[ExportGraph, ExportInfo, str], None]
    read: Callable[[str], tuple[ExportInfo, Run]]

    def require(self, modules: tuple[str, ...]) -> None:
        """Raise ImportError with the remedy unless all ``modules`` can be imported."""
        for module in modules:
            try:
                import_module(module)
            except ModuleNotFoundError:
                raise ImportError(
                    f"format {self.name!r} needs {module}; install lucid-models with its extra {self.name!r}"
                ) from None


def _canvases(info: ExportInfo) -> Tensor:
    # a batch of one would be taken for a constant
    return torch.zeros(info.batch or 2, 3, info.image_size, info.image_size)


def _shapes(info: ExportInfo) -> Any:
    return None if info.batch else ({0: torch.export.Dim("batch")},)


def _write_onnx(graph: ExportGraph, info: ExportInfo, path: str) -> None:
    program: Any = torch.onnx.export(
        graph,
        (_canvases(info),),
        dynamo=True,
        dynamic_shapes=_shapes(info),
        input_names=["images"],
        output_names=list(info.outputs),
        opset_version=ONNX_OPSET,
        verbose=False,
    )
    program.model.metadata_props[KEY] = info.to_json()
    program.save(path, external_data=False)


def _read_onnx(path: str) -> tuple[ExportInfo, Run]:
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    try:
        session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        # the runtime's errors have no common class of their own
        if type(error).__module__.startswith("onnxruntime"):
            raise ValueError(f"{path} is no ONNX graph: {str(error).splitlines()[0]}") from None
        raise
    info = ExportInfo.from_json(session.get_modelmeta().custom_metadata_map.get(KEY), path)

    def run(images: Tensor) -> tuple[Tensor, ...]:
        found = session.run(None, {"images": images.contiguous().numpy()})
        return tuple(torch.from_numpy(value) for value in found)

    return info, run


def _write_torchscript(graph: ExportGraph, info: ExportInfo, path: str) -> None:
    with warnings.catch_warnings():
        # the checks of shapes become constants of the canvas, as they should; torch itself names its successor
        warnings.simplefilter("ignore")
        traced = _JIT.trace(graph, _canvases(info), check_trace=False)
        _JIT.save(traced, path, _extra_files={_EXTRA: info.to_json()})


def _read_torchscript(path: str) -> tuple[ExportInfo, Run]:
    extra: dict[str, Any] = {_EXTRA: ""}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module = _JIT.load(path, map_location="cpu", _extra_files=extra)
        except RuntimeError as error:
            raise ValueError(f"{path} is no TorchScript archive: {str(error).splitlines()[0]}") from None
    text = extra[_EXTRA]
    return ExportInfo.from_json(text.decode() if isinstance(text, bytes) else text, path), module


def _write_program(graph: ExportGraph, info: ExportInfo, path: str) -> None:
    program = torch.export.export(graph, (_canvases(info),), dynamic_shapes=_shapes(info))
    with open(path, "wb") as file:  # a name would have to end in .pt2
        torch.export.save(program, file, extra_files={_EXTRA: info.to_json()})


def _read_program(path: str) -> tuple[ExportInfo, Run]:
    extra: dict[str, Any] = {_EXTRA: ""}
    with open(path, "rb") as file:
        if not zipfile.is_zipfile(file):
            raise ValueError(f"{path} is no exported program: those are zip archives")
        file.seek(0)
        program = torch.export.load(file, extra_files=extra)
    return ExportInfo.from_json(extra[_EXTRA], path), program.module()


def _write_safetensors(graph: ExportGraph, info: ExportInfo, path: str) -> None:
    tensors = {key: value.contiguous() for key, value in graph.network.state_dict().items()}
    import_module("safetensors.torch").save_file(tensors, path, metadata={KEY: info.to_json()})


def _read_safetensors(path: str) -> tuple[ExportInfo, Run]:
    safetensors = import_module("safetensors")
    try:
        with safetensors.safe_open(path, "pt") as file:
            info = ExportInfo.from_json((file.metadata() or {}).get(KEY), path)
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (no mapping)
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is no safetensors file: {error}") from None
    with torch.random.fork_rng(devices=()):  # the weights drawn here are replaced at once
        detector = build_detector(
            info.task,
            info.size,
            names=info.names,
            num_keypoints=info.num_keypoints,
            image_size=info.image_size,
        )
    graph = ExportGraph(detector, info.image_size, info.max_detections).eval()
    graph.network.load_state_dict(tensors)
    return info, graph


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        row.name: row
        for row in (
            Format("onnx", ".onnx", ("onnx", "onnxscript"), ("onnxruntime",), _write_onnx, _read_onnx),
            Format("torchscript", ".torchscript", (), (), _write_torchscript, _read_torchscript),
            Format("exported-program", ".pt2", (), (), _write_program, _read_program),
            Format(
                "safetensors",
                ".safetensors",
                ("safetensors",),
                ("safetensors",),
                _write_safetensors,
                _read_safetensors,
            ),
        )
    }
)
"""The formats by name; read-only. safetensors holds the folded weights alone, the others the whole graph."""
