"""What every public function promises: shapes in words, no rows, half precision, one wide dtype, a light import."""

import inspect
import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import lucid_geometry as geometry
from lucid_geometry import Affine, Letterbox

AFFINE = Affine.rotation(0.3) @ Affine.scaling(1.5, 1.5)
LETTERBOX = Letterbox(30, 40, 64, 64)


Cast = Callable[[Tensor], Tensor]


def boxes(cast: Cast, rows: int, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return cast((torch.rand(rows, 4, generator=g) * 8).cumsum(-1))


def rboxes(cast: Cast, rows: int, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    low = torch.tensor([0.0, 0, 1, 1, -3])
    return cast(low + torch.rand(rows, 5, generator=g) * torch.tensor([20.0, 20, 12, 12, 6]))


def rings(cast: Cast, rows: int) -> Tensor:
    return cast(geometry.rboxes_to_polygons(rboxes(as_it_is, rows)))


def as_it_is(tensor: Tensor) -> Tensor:
    return tensor


def scores(rows: int) -> Tensor:
    return torch.linspace(1, 0, rows)


Call = Callable[[Cast, int], Any]
CALLS: dict[str, Call] = {
    "aligned_box_iou": lambda c, n: geometry.aligned_box_iou(boxes(c, n), boxes(c, n, 1)),
    "aligned_rotated_box_iou": lambda c, n: geometry.aligned_rotated_box_iou(rboxes(c, n), rboxes(c, n, 1)),
    "angle_difference": lambda c, n: geometry.angle_difference(rboxes(c, n)[:, 4], rboxes(c, n, 1)[:, 4]),
    "box_area": lambda c, n: geometry.box_area(boxes(c, n)),
    "box_iou": lambda c, n: geometry.box_iou(boxes(c, n), boxes(c, n, 1)),
    "canonicalize_rboxes": lambda c, n: geometry.canonicalize_rboxes(rboxes(c, n)),
    "clip_boxes": lambda c, n: geometry.clip_boxes(boxes(c, n), 9, 11),
    "clip_half_plane": lambda c, n: geometry.clip_half_plane(
        rings(c, n), boxes(c, n)[:, :2], boxes(c, n)[:, 2:]
    ),
    "clip_rboxes": lambda c, n: geometry.clip_rboxes(rboxes(c, n), 9, 11),
    "clip_ring": lambda c, n: geometry.clip_ring(rings(c, 1)[0, : n and 4], 9, 11),
    "clip_rings": lambda c, n: geometry.clip_rings(list(rings(c, n)), 9, 11),
    "complete_box_iou": lambda c, n: geometry.complete_box_iou(boxes(c, n), boxes(c, n, 1)),
    "convex_intersection": lambda c, n: geometry.convex_intersection(rings(c, n), rings(c, n).flip(0)),
    "cxcywh_to_xyxy": lambda c, n: geometry.cxcywh_to_xyxy(boxes(c, n)),
    "dota_to_rboxes": lambda c, n: geometry.dota_to_rboxes(rings(c, n).reshape(n, 8)),
    "flip_rboxes_horizontal": lambda c, n: geometry.flip_rboxes_horizontal(rboxes(c, n), 30),
    "flip_rboxes_vertical": lambda c, n: geometry.flip_rboxes_vertical(rboxes(c, n), 30),
    "nms": lambda c, n: geometry.nms(boxes(c, n), scores(n), 0.3),
    "opencv_to_rboxes": lambda c, n: geometry.opencv_to_rboxes(rboxes(c, n)),
    "points_in_rboxes": lambda c, n: geometry.points_in_rboxes(boxes(c, n)[:, :2], rboxes(c, n)),
    "polygon_area": lambda c, n: geometry.polygon_area(rings(c, n)),
    "polygons_to_rboxes": lambda c, n: geometry.polygons_to_rboxes(rings(c, n)),
    "probiou": lambda c, n: geometry.probiou(rboxes(c, n), rboxes(c, n, 1)),
    "probiou_loss": lambda c, n: geometry.probiou_loss(rboxes(c, n), rboxes(c, n, 1)),
    "rboxes_to_boxes": lambda c, n: geometry.rboxes_to_boxes(rboxes(c, n)),
    "rboxes_to_dota": lambda c, n: geometry.rboxes_to_dota(rboxes(c, n)),
    "rboxes_to_opencv": lambda c, n: geometry.rboxes_to_opencv(rboxes(c, n)),
    "rboxes_to_polygons": lambda c, n: geometry.rboxes_to_polygons(rboxes(c, n)),
    "rboxes_to_torchvision": lambda c, n: geometry.rboxes_to_torchvision(rboxes(c, n)),
    "refit_ring": lambda c, n: geometry.refit_ring(rings(c, 1)[0, : n and 4], 0.3),
    "refit_rings": lambda c, n: geometry.refit_rings(list(rings(c, n)), 0.3),
    "rotate_rboxes_clockwise": lambda c, n: geometry.rotate_rboxes_clockwise(rboxes(c, n), 30),
    "rotated_box_iou": lambda c, n: geometry.rotated_box_iou(rboxes(c, n), rboxes(c, n, 1)),
    "rotated_nms": lambda c, n: geometry.rotated_nms(rboxes(c, n), scores(n), 0.3),
    "torchvision_to_rboxes": lambda c, n: geometry.torchvision_to_rboxes(rboxes(c, n)),
    "xywh_to_xyxy": lambda c, n: geometry.xywh_to_xyxy(boxes(c, n)),
    "xyxy_to_cxcywh": lambda c, n: geometry.xyxy_to_cxcywh(boxes(c, n)),
    "xyxy_to_xywh": lambda c, n: geometry.xyxy_to_xywh(boxes(c, n)),
    "Affine.boxes": lambda c, n: AFFINE.boxes(boxes(c, n)),
    "Affine.points": lambda c, n: AFFINE.points(boxes(c, n)[:, :2]),
    "Affine.polygons": lambda c, n: AFFINE.polygons(rings(c, n)),
    "Affine.rboxes": lambda c, n: AFFINE.rboxes(rboxes(c, n)),
    "Letterbox.forward_boxes": lambda c, n: LETTERBOX.forward_boxes(boxes(c, n)),
    "Letterbox.forward_points": lambda c, n: LETTERBOX.forward_points(boxes(c, n)[:, :2]),
    "Letterbox.forward_rboxes": lambda c, n: LETTERBOX.forward_rboxes(rboxes(c, n)),
    "Letterbox.inverse_boxes": lambda c, n: LETTERBOX.inverse_boxes(boxes(c, n)),
    "Letterbox.inverse_points": lambda c, n: LETTERBOX.inverse_points(boxes(c, n)[:, :2]),
    "Letterbox.inverse_rboxes": lambda c, n: LETTERBOX.inverse_rboxes(rboxes(c, n)),
}
calls = pytest.mark.parametrize("name", CALLS)
KEEP_HALF = {"probiou", "probiou_loss"}


def tensors(result: object) -> Iterator[Tensor]:
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, tuple):
        for each in result:
            yield from tensors(each)


def functions() -> dict[str, Callable[..., Any]]:
    """Every public function, and every public method of a public class that takes tensors."""
    found: dict[str, Callable[..., Any]] = {}
    for name in geometry.__all__:
        value = getattr(geometry, name)
        if inspect.isfunction(value):
            found[name] = value
        elif name in ("Affine", "Letterbox"):
            members = inspect.getmembers(value, inspect.isfunction)
            found |= {
                f"{name}.{n}": f
                for n, f in members
                if not n.startswith("_") and "Tensor" in str(f.__annotations__)
            }
    return found


def test_every_public_function_is_called_here() -> None:
    assert set(functions()) - {"Letterbox.matrix"} == set(CALLS)


@pytest.mark.parametrize("name", sorted(functions()))
def test_its_docstring_gives_shapes_and_kinds_of_its_tensors(name: str) -> None:
    text = functions()[name].__doc__ or ""
    shapes = re.findall(r'(?:Real|Float|Int|Int64|Bool|Float64)\[Tensor,\s+"[^"]*"\]', text)
    wanted = 1 if name == "Letterbox.matrix" else 2
    assert len(shapes) >= wanted, shapes


@calls
def test_no_rows_are_fine(name: str) -> None:
    for tensor in tensors(CALLS[name](as_it_is, 0)):
        assert not tensor.isnan().any()
        assert tensor.numel() == 0 or name == "refit_ring"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@calls
def test_half_precision_is_computed_in_float32(name: str, dtype: torch.dtype) -> None:
    half = tensors(CALLS[name](lambda tensor: tensor.to(dtype), 6))
    full = tensors(CALLS[name](lambda tensor: tensor.to(dtype).float(), 6))
    for narrow, wide in zip(half, full, strict=True):
        assert narrow.dtype == (dtype if name in KEEP_HALF else wide.dtype)
        assert torch.equal(narrow, wide.to(narrow.dtype))


class NoFloat64(TorchDispatchMode):
    """A device that has no float64."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tensors(result if isinstance(result, tuple) else (result,)):
            # numbers from Python are no tensors of the device
            assert tensor.dtype != torch.float64 or tensor.dim() == 0, func
        return result


@calls
def test_a_device_without_float64_gets_none(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = list(tensors(CALLS[name](as_it_is, 6)))
    monkeypatch.setitem(sys.modules["lucid_geometry._checks"]._WITHOUT_FLOAT64, "cpu", torch.float32)
    matrix = AFFINE.matrix.float()
    monkeypatch.setattr(Affine, "_apply", lambda self, p: p @ matrix[:2, :2].T + matrix[:2, 2])
    with NoFloat64():
        actual = list(tensors(CALLS[name](as_it_is, 6)))
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_importing_it_brings_in_torch_and_nothing_else() -> None:
    code = (
        "import sys, torch; before = set(sys.modules); import lucid_geometry; "
        "print(sorted({m.split('.')[0] for m in set(sys.modules) - before}))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "['lucid_geometry']"


def test_angles_are_radians_everywhere_but_in_the_named_conventions() -> None:
    box = torch.tensor([5.0, 5.0, 4.0, 2.0, math.radians(30)])
    assert geometry.rboxes_to_torchvision(box)[4].item() == pytest.approx(-30, abs=1e-5)
    assert geometry.rboxes_to_opencv(box)[4].item() == pytest.approx(30, abs=1e-5)
