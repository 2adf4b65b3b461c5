"""The forms of results: COCO entries, run lengths, plain values, another library's records; sources."""

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchvision.io import write_jpeg, write_png

from lucid_models import TASKS, Detector, Predictions, Predictor, as_image, encode_masks, list_pictures

OfTask = Callable[[str], Detector]
pycocotools = pytest.importorskip("pycocotools.mask")


def cocos(masks: torch.Tensor) -> list[str]:
    planes = np.asfortranarray(masks.permute(1, 2, 0).numpy().astype(np.uint8))
    return [entry["counts"].decode() for entry in pycocotools.encode(planes)]


@given(st.integers(1, 4), st.integers(1, 40), st.integers(1, 40), st.floats(0, 1), st.integers(0, 999))
@settings(max_examples=60, deadline=None)
def test_run_lengths_equal_cocos(count: int, height: int, width: int, share: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    masks = torch.rand(count, height, width, generator=generator) < share
    assert encode_masks(masks) == cocos(masks)


def test_run_lengths_of_long_runs_and_of_chunks_equal_cocos(monkeypatch: pytest.MonkeyPatch) -> None:
    masks = torch.zeros(5, 700, 900) > 0
    masks[1, 10:600, 100:850] = True
    masks[2] = True
    masks[3, 0, 0] = masks[4, -1, -1] = True
    assert encode_masks(masks) == cocos(masks)
    monkeypatch.setattr("lucid_models.rle._PIXELS", 700 * 900 * 2)
    assert encode_masks(masks) == cocos(masks)
    assert encode_masks(masks[:0]) == []


def test_masks_of_another_kind_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(N, H, W\), got \(4, 4\)"):
        encode_masks(torch.zeros(4, 4) > 0)
    with pytest.raises(TypeError, match=r"bool, got torch.uint8"):
        encode_masks(torch.zeros(1, 4, 4, dtype=torch.uint8))


def two(**fields: torch.Tensor) -> Predictions:
    boxes = torch.tensor([[1.0, 2, 5, 9], [0, 0, 3, 3]])
    scores, labels = torch.tensor([0.75, 0.5]), torch.tensor([1, 0])
    return Predictions(boxes, scores, labels, ("a", "b"), (10, 12), **fields)


def test_masks_become_cocos_segmentation() -> None:
    masks = torch.rand(2, 10, 12) < 0.5
    for entry, mask in zip(two(masks=masks).to_coco(3), masks, strict=True):
        assert entry["segmentation"]["size"] == [10, 12]
        assert torch.equal(torch.from_numpy(pycocotools.decode(entry["segmentation"])).bool(), mask)
        json.dumps(entry)


def test_keypoints_become_a_flat_list_of_triples() -> None:
    keypoints = torch.arange(12.0).view(2, 2, 3)
    entries = two(keypoints=keypoints).to_coco(3)
    # COCO states the index of a pixel, half a pixel less than its centre
    assert [entry["keypoints"] for entry in entries] == [
        [-0.5, 0.5, 2.0, 2.5, 3.5, 5.0],
        [5.5, 6.5, 8.0, 8.5, 9.5, 11.0],
    ]
    assert "segmentation" not in entries[0]


def test_rotated_boxes_become_a_polygon_of_their_corners() -> None:
    rboxes = torch.tensor([[5.0, 2.5, 6, 3, 0], [0, 0, 2, 2, 0]])
    first = two(rboxes=rboxes).to_coco(3)[0]
    assert first["segmentation"] == [[2.0, 1.0, 8.0, 1.0, 8.0, 4.0, 2.0, 4.0]]
    assert first["bbox"] == [1.0, 2.0, 4.0, 7.0]


def test_plain_form_holds_what_the_task_predicts_and_survives_json() -> None:
    everything = two(
        masks=torch.ones(2, 10, 12) > 0, keypoints=torch.ones(2, 1, 3), rboxes=torch.zeros(2, 5)
    ).to_dict()
    assert json.loads(json.dumps(everything)) == everything
    first = everything["detections"][0]
    assert first["mask"] == {"size": [10, 12], "counts": encode_masks(torch.ones(1, 10, 12) > 0)[0]}
    assert (first["keypoints"], first["rbox"]) == ([[1.0, 1.0, 1.0]], [0.0] * 5)


def test_another_librarys_records_get_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, object] = {}
    monkeypatch.setitem(
        sys.modules, "supervision", SimpleNamespace(Detections=lambda **fields: seen.update(fields) or "made")
    )
    masks = torch.ones(2, 10, 12) > 0
    assert two(masks=masks, rboxes=torch.zeros(2, 5)).to_supervision() == "made"
    assert np.array_equal(seen["xyxy"], two().boxes.numpy())
    assert (seen["confidence"].tolist(), seen["class_id"].tolist()) == ([0.75, 0.5], [1, 0])
    assert seen["mask"].shape == (2, 10, 12)
    assert seen["data"]["class_name"] == ["b", "a"]
    assert seen["data"]["xyxyxyxy"].shape == (2, 4, 2)


def test_without_that_library_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "supervision", None)
    with pytest.raises(ImportError, match="needs the package supervision") as caught:
        two().to_supervision()
    assert "\n" not in str(caught.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, size in (("b.png", (50, 30)), ("a.png", (20, 70))):
        write_png(torch.randint(0, 256, (3, *size), dtype=torch.uint8), str(tmp_path / name))
    (tmp_path / "notes.txt").write_text("no picture")
    return tmp_path


def test_files_folders_arrays_and_batches_give_the_same_predictions(folder: Path, of_task: OfTask) -> None:
    predictor = Predictor(of_task("detect"), image_size=64, confidence=0.0, batch_size=3)
    paths = list_pictures(folder)
    assert [path.name for path in paths] == ["a.png", "b.png"]
    tensors = [as_image(path, 0) for path in paths]
    expected = predictor(tensors)
    assert [result.image_size for result in expected] == [(20, 70), (50, 30)]
    arrays = [tensor.permute(1, 2, 0).numpy() for tensor in tensors]
    for sources in (paths, str(folder), [folder], arrays, [tensors[0], str(paths[1])]):
        for got, want in zip(predictor(sources), expected, strict=True):
            assert torch.equal(got.scores, want.scores)
    one = predictor(tensors[0])
    assert len(one) == 1
    batch = predictor(torch.stack([tensors[0], tensors[0]]))
    assert torch.allclose(batch[1].scores, one[0].scores, atol=1e-5)
    assert torch.equal(predictor(arrays[0])[0].scores, one[0].scores)


def test_a_stream_reads_files_only_when_their_turn_comes(folder: Path, of_task: OfTask) -> None:
    predictor = Predictor(of_task("segment"), image_size=64, confidence=0.0, max_detections=2, batch_size=1)
    found = predictor.stream([folder / "a.png", folder / "missing.png"])
    assert next(found).image_size == (20, 70)
    with pytest.raises(OSError, match=r"missing\.png"):
        next(found)


def test_what_is_in_memory_is_checked_before_the_first_result(of_task: OfTask) -> None:
    good, bad = torch.zeros(3, 8, 8, dtype=torch.uint8), torch.zeros(3, 8, 8)
    with pytest.raises(TypeError, match="image 1"):
        Predictor(of_task("detect"), image_size=64, batch_size=1).stream([good, bad])


def test_red_stays_red(tmp_path: Path) -> None:
    red = torch.tensor([200, 10, 20], dtype=torch.uint8).view(3, 1, 1).expand(3, 8, 8).contiguous()
    write_png(red, str(tmp_path / "red.png"))
    write_jpeg(red, str(tmp_path / "red.jpg"), quality=95)
    assert torch.equal(as_image(tmp_path / "red.png", 0), red)
    assert (as_image(tmp_path / "red.jpg", 0).int() - red.int()).abs().max() <= 4
    assert torch.equal(as_image(red.permute(1, 2, 0).numpy(), 0), red)


def test_arrays_may_be_reversed_read_only_or_another_librarys() -> None:
    bgr = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    expected = torch.from_numpy(bgr[..., ::-1].copy()).permute(2, 0, 1)
    assert torch.equal(as_image(bgr[..., ::-1], 0), expected)
    fixed = bgr[..., ::-1].copy()
    fixed.flags.writeable = False
    assert torch.equal(as_image(fixed, 0), expected)
    picture = SimpleNamespace(__array_interface__=fixed.__array_interface__)
    assert torch.equal(as_image(picture, 0), expected)


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "file is empty"), (b"GIF nonsense", "cannot read"), (None, "No such file")]
)
def test_files_that_cannot_be_read_are_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "x.png"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(OSError, match=message) as caught:
        as_image(path, 0)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("images", "error", "message"),
    [
        ([np.zeros((4, 4, 3), np.float32)], TypeError, "image 0 must be uint8, got torch.float32"),
        ([np.zeros((3, 4, 4), np.uint8)], ValueError, r"image 0 must be \(H, W, 3\) RGB, got \(3, 4, 4\)"),
        ([7], TypeError, "image 0 must be a tensor, an array or a path, got int"),
        (7, TypeError, "give images, paths or a list of them, got int"),
    ],
)
def test_sources_that_are_none_are_refused(
    images: object, error: type[Exception], message: str, of_task: OfTask
) -> None:
    with pytest.raises(error, match=message):
        Predictor(of_task("detect"), image_size=64)(images)


def test_folders_without_pictures_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no picture"):
        list_pictures(tmp_path)
    with pytest.raises(FileNotFoundError, match="no folder at"):
        list_pictures(tmp_path / "none")


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("path", ["e2e", "nms"])
def test_the_predictor_serves_every_task_on_mixed_sizes(task: str, path: str, of_task: OfTask) -> None:
    images = [torch.randint(0, 256, (3, h, w), dtype=torch.uint8) for h, w in ((40, 90), (64, 64), (100, 30))]
    predictor = Predictor(
        of_task(task), image_size=64, confidence=0.0, max_detections=5, path=path, batch_size=2
    )
    results = predictor(images)
    assert [result.image_size for result in results] == [(40, 90), (64, 64), (100, 30)]
    for result in results:
        assert len(result) == 5
        for field in (result.masks, result.keypoints, result.rboxes):
            assert field is None or (len(field) == 5 and not field.is_inference())
        if result.masks is not None:
            assert result.masks.shape[1:] == result.image_size


def said_of(place: Path) -> str | None:
    try:
        as_image(place, 0)
    except OSError as error:
        return str(error)
    return None


def test_damaged_pictures_end_in_one_line_each(tmp_path: Path) -> None:
    write_png(torch.randint(0, 256, (3, 40, 50), dtype=torch.uint8), str(tmp_path / "whole.png"))
    whole, rng = (tmp_path / "whole.png").read_bytes(), random.Random(1)
    place = tmp_path / "damaged.png"
    for _ in range(300):
        data = bytearray(whole)
        at = rng.randrange(len(data))
        if rng.random() < 0.5:
            data[at] = rng.randrange(256)
        else:
            del data[at : at + rng.randint(1, 40)]
        place.write_bytes(data)
        said = said_of(place)
        assert said is None or (said.startswith(f"cannot read image {place}: ") and "\n" not in said)
