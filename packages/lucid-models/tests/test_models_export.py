"""Exported files agree with the eager predictor and say what they are."""

import copy
import inspect
import json
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torchvision.io import ImageReadMode, decode_image, write_png

from lucid_models import (
    Detector,
    ExportedPredictor,
    ExportInfo,
    Predictor,
    build_detector,
    checkpoint_header,
    export,
    parity,
    sources,
)
from lucid_models.exports import FORMATS, exporting

SIDE = 96
SHARED = Path(__file__).parents[4] / "shared" / "data"
OfTask = Callable[[str], Detector]


def need(name: str) -> None:
    for module in (*FORMATS[name].writers, *FORMATS[name].readers):
        pytest.importorskip(module, reason=f"{module} is not installed")


@pytest.fixture
def pictures() -> list[Tensor]:
    """Smooth pictures of differing shapes."""
    sides = ((50, 90), (120, 70), (96, 96))
    coarse = [torch.rand(1, 3, h // 9, w // 9) * 255 for h, w in sides]
    return [
        torch.nn.functional.interpolate(c, size=s, mode="bicubic")[0].clamp(0, 255).to(torch.uint8)
        for c, s in zip(coarse, sides, strict=True)
    ]


def fair(detector: Detector, pictures: list[Tensor]) -> float:
    """A confidence that about a dozen detections of each picture pass."""
    found = Predictor(detector, image_size=SIDE, confidence=0.0)(pictures)
    return sorted(float(scores[12]) for scores in (one.scores for one in found))[1]


CASES = [
    ("segment", "onnx", None),
    ("obb", "onnx", 2),
    ("pose", "torchscript", None),
    ("detect", "exported-program", None),
    *((task, "safetensors", None) for task in ("detect", "segment", "pose", "obb")),
]


@pytest.mark.parametrize(("task", "form", "batch"), CASES)
def test_a_file_gives_the_predictions_of_its_detector(
    task: str, form: str, batch: int | None, of_task: OfTask, tmp_path: Path, pictures: list[Tensor]
) -> None:
    need(form)
    detector = of_task(task)
    path = export(detector, tmp_path / "it", form, image_size=SIDE, batch=batch, max_detections=60)
    confidence = fair(detector, pictures)
    found = parity(detector, path, pictures, format=form, confidence=confidence, batch_size=2)
    assert found.passed, found
    assert found.detections >= 12
    info = ExportedPredictor(path, format=form).info
    assert (info.task, info.names, info.image_size, info.batch) == (task, detector.names, SIDE, batch)
    if form == "onnx":
        import onnx

        graph = onnx.load(path)
        assert not any("Suppression" in node.op_type for node in graph.graph.node)
        assert {entry.key for entry in graph.metadata_props} >= {"lucid"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["it"]


@pytest.fixture(scope="module")
def exported(
    tmp_path_factory: pytest.TempPathFactory, enlivening: Callable[[Detector], Detector]
) -> tuple[Detector, Path]:
    """A detector with scores about one half, and its file."""
    torch.manual_seed(1)
    detector = enlivening(build_detector("detect", "n", num_classes=2, image_size=SIDE))
    for stem in detector.head.o2o.cls:
        torch.nn.init.zeros_(stem[-1].bias)
    path = tmp_path_factory.mktemp("export") / "a.torchscript"
    return detector, export(detector, path, "torchscript", max_detections=100)


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"real pictures are not at {SHARED}")
def test_real_pictures_of_differing_shapes_agree(exported: tuple[Detector, Path]) -> None:
    shapes: dict[tuple[int, ...], Tensor] = {}
    for path in sorted((SHARED / "coco_subset").rglob("*.jpg"))[:40]:
        image = decode_image(str(path), mode=ImageReadMode.RGB)
        shapes.setdefault(tuple(image.shape), image)
    images = list(shapes.values())[:6]
    assert len(images) == 6
    found = parity(*exported, images, confidence=fair(exported[0], images))
    assert found.passed, found
    assert found.detections >= 36


@pytest.mark.parametrize(
    ("stem", "shift", "wrong"), [("cls", 2e-3, "score"), ("box", 0.02, "lost"), ("cls", 3.0, "lost")]
)
def test_the_gate_fails_for_other_scores_boxes_and_counts(
    stem: str, shift: float, wrong: str, exported: tuple[Detector, Path], pictures: list[Tensor]
) -> None:
    confidence = fair(exported[0], pictures)
    other = copy.deepcopy(exported[0])
    for module in getattr(other.head.o2o, stem):
        with torch.no_grad():
            module[-1].bias += shift
    found = parity(other, exported[1], pictures, confidence=confidence)
    assert getattr(found, wrong) > 1e-4
    assert not found.passed


def test_one_partner_for_two_detections_is_one_too_few(
    exported: tuple[Detector, Path], pictures: list[Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Predictor.stream

    def doubled(self: Predictor, images: object) -> Iterator[object]:
        def twice(one: object) -> object:
            names = ("boxes", "scores", "labels")
            return replace(one, **{n: getattr(one, n).repeat_interleave(2, 0) for n in names})  # type: ignore[type-var]

        return map(twice, original(self, images))

    monkeypatch.setattr(Predictor, "stream", doubled)
    assert parity(*exported, pictures, confidence=fair(exported[0], pictures)).lost > 0


def public(value: object) -> set[str]:
    return {name for name in dir(value) if not name.startswith("_")}


def test_both_predictors_have_one_surface(exported: tuple[Detector, Path]) -> None:
    eager, other = Predictor(exported[0], max_detections=100), ExportedPredictor(exported[1])
    assert public(eager) == {
        "names",
        "image_size",
        "device",
        "confidence",
        "max_detections",
        "path",
        "batch_size",
        "stream",
    }
    assert public(other) - public(eager) == {"info", "rows"}
    for name in public(eager) - {"stream"}:
        assert getattr(other, name) == getattr(eager, name), name
    for name in ("__call__", "stream"):
        assert inspect.signature(getattr(Predictor, name)) == inspect.signature(
            getattr(ExportedPredictor, name)
        )


def test_both_predictors_take_options_by_name_with_the_same_defaults() -> None:
    (_, *eager), (_, *other) = (
        inspect.signature(kind).parameters.values() for kind in (Predictor, ExportedPredictor)
    )
    assert {one.kind for one in (*eager, *other)} == {inspect.Parameter.KEYWORD_ONLY}
    defaults = {one.name: one.default for one in eager}
    # what a file has fixed: its canvas, its branch, the CPU and the most rows there are
    assert defaults.keys() - {one.name for one in other} == {"image_size", "device", "path"}
    for one in other:
        if one.name not in ("format", "max_detections"):
            assert one.default == defaults[one.name], one.name


def test_a_file_streams_and_opens_pictures_only_when_their_turn_comes(
    exported: tuple[Detector, Path], pictures: list[Tensor], tmp_path: Path
) -> None:
    predictor = ExportedPredictor(exported[1], confidence=0.0, max_detections=7, batch_size=1)
    for one, other in zip(predictor.stream(pictures), predictor(pictures), strict=True):
        assert len(one) == 7
        assert torch.equal(one.boxes, other.boxes)
    write_png(pictures[0], str(tmp_path / "a.png"))
    found = predictor.stream([tmp_path / "a.png", tmp_path / "missing.png"])
    assert next(found).image_size == (50, 90)
    with pytest.raises(OSError, match=r"missing\.png"):
        next(found)
    # what is in memory is checked before anything is opened or computed
    with pytest.raises(TypeError, match="image 1"):
        predictor.stream([tmp_path / "missing.png", pictures[0].float()])


@pytest.mark.parametrize("kind", ["eager", "exported"])
def test_of_a_folder_one_batch_of_pictures_is_held(
    kind: str,
    exported: tuple[Detector, Path],
    pictures: list[Tensor],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for i in range(6):
        write_png(pictures[0], str(tmp_path / f"{i}.png"))
    held: list[weakref.ref[Tensor]] = []
    alive, original = [], sources.as_image

    def watched(source: object, position: int) -> Tensor:
        image = original(source, position)
        held.append(weakref.ref(image))
        alive.append(sum(one() is not None for one in held))
        return image

    monkeypatch.setattr(sources, "as_image", watched)
    predictor = (
        Predictor(exported[0], batch_size=2)
        if kind == "eager"
        else ExportedPredictor(exported[1], batch_size=2)
    )
    assert sum(1 for _ in predictor.stream(tmp_path)) == 6
    assert alive == [1, 2] * 3


def test_at_most_the_rows_of_the_file_are_looked_at(exported: tuple[Detector, Path]) -> None:
    assert ExportedPredictor(exported[1]).max_detections == 100
    assert ExportedPredictor(exported[1], max_detections=300).max_detections == 100
    with pytest.raises(ValueError, match="max_detections must be at least 1, got 0"):
        ExportedPredictor(exported[1], max_detections=0)


def test_a_checkpoint_is_exported_at_its_own_size(lively: Detector, tmp_path: Path) -> None:
    need("safetensors")
    torch.save({"lucid": checkpoint_header(lively, image_size=64)}, tmp_path / "it.ckpt")
    path = export(tmp_path / "it.ckpt", tmp_path / "it.safetensors", "safetensors", max_detections=10)
    assert ExportedPredictor(path).info == ExportInfo(
        "detect", "n", lively.names, None, 64, 10, None, ("detections",)
    )


def test_a_failed_export_leaves_what_was_there(
    lively: Detector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(graph: object, info: object, path: str) -> None:
        Path(path).write_text("half")
        raise RuntimeError("no space")

    row = replace(FORMATS["torchscript"], write=broken)
    monkeypatch.setattr(exporting, "FORMATS", {"torchscript": row})
    target = tmp_path / "a.torchscript"
    target.write_text("old")
    with pytest.raises(RuntimeError, match="no space"):
        export(lively, target, "torchscript", image_size=64)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.torchscript"]
    assert target.read_text() == "old"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"format": "tflite"}, "unknown format 'tflite'; choose one of onnx, torchscript"),
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"max_detections": 0}, "max_detections must be at least 1"),
        ({"image_size": 70}, "canvas 70 x 70 must have positive sides that stride 8 divides"),
    ],
)
def test_what_cannot_be_exported_is_refused(
    arguments: dict[str, object], message: str, lively: Detector, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        export(lively, tmp_path / "a", **({"format": "torchscript", "image_size": 64} | arguments))  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_masks_want_as_many_points_as_detections(of_task: OfTask, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="84 anchor points for max_detections=300 masks"):
        export(of_task("segment"), tmp_path / "a", "torchscript", image_size=64)


@pytest.mark.parametrize(("form", "module"), [("onnx", "onnx"), ("safetensors", "safetensors")])
def test_a_missing_library_is_named_with_the_remedy(
    form: str, module: str, lively: Detector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=f"needs {module}; install lucid-models with its extra '{form}'"):
        export(lively, tmp_path / "a", form)


@pytest.mark.parametrize("form", list(FORMATS))
def test_other_files_are_refused_in_one_line(form: str, tmp_path: Path) -> None:
    need(form)
    path = tmp_path / f"a{FORMATS[form].suffix}"
    path.write_bytes(b"something else entirely" * 9)
    with pytest.raises(ValueError, match=rf"{path.name} is no ") as refusal:
        ExportedPredictor(path)
    assert "\n" not in str(refusal.value)


def test_files_that_are_missing_or_of_unknown_suffix_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no exported file at"):
        ExportedPredictor(tmp_path / "a.onnx")
    (tmp_path / "a.bin").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"unknown suffix of an export '\.bin'; choose one of \.onnx, "):
        ExportedPredictor(tmp_path / "a.bin")


@pytest.mark.parametrize("text", [None, "", "[]", "{}", "nonsense", json.dumps({"task": "detect"})])
def test_metadata_of_others_is_refused(text: str | None) -> None:
    with pytest.raises(ValueError, match=r"model\.onnx carries no entry 'lucid'"):
        ExportInfo.from_json(text, "model.onnx")


def test_metadata_of_a_later_schema_is_refused() -> None:
    info = ExportInfo("detect", "n", ("a",), None, 64, 10, None, ("detections",), schema=2)
    with pytest.raises(ValueError, match="schema 2, this version reads 1"):
        ExportInfo.from_json(info.to_json(), "x")
