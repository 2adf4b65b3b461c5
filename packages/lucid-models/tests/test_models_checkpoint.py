"""Checkpoints: round trip, refusals in one line, and weight transfer."""

import io
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lucid_models import (
    Detector,
    build_detector,
    checkpoint_header,
    count,
    describe,
    load,
    load_weights,
)


@pytest.fixture
def saved(lively: Detector, tmp_path: Path) -> Path:
    path = tmp_path / "model.ckpt"
    torch.save({"lucid": checkpoint_header(lively, image_size=320), "epoch": 3}, path)
    return path


def test_round_trip_gives_the_same_outputs(lively: Detector, saved: Path) -> None:
    loaded = load(saved)
    assert not loaded.training
    assert (loaded.task, loaded.size, loaded.names, loaded.image_size) == (
        "detect",
        "n",
        lively.names,
        320,
    )
    images = torch.rand(1, 3, 64, 64)
    assert torch.equal(loaded(images).o2o.cls, lively.eval()(images).o2o.cls)


def test_loaded_detector_trains(saved: Path) -> None:
    loaded = load(saved).train()
    loaded(torch.rand(2, 3, 64, 64)).o2m.cls.sum().backward()
    assert loaded.backbone.stem.conv.weight.grad is not None
    assert {p.device.type for p in loaded.parameters()} == {"cpu"}


def test_loading_draws_no_random_numbers(saved: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    load(saved)
    assert torch.equal(torch.rand(3), expected)


def test_half_precision_weights_load_as_float32(lively: Detector, tmp_path: Path) -> None:
    header = checkpoint_header(lively)
    header["weights"] = {k: v.half() if v.is_floating_point() else v for k, v in header["weights"].items()}
    torch.save({"lucid": header}, tmp_path / "half.ckpt")
    assert {p.dtype for p in load(tmp_path / "half.ckpt").parameters()} == {torch.float32}


def test_description_needs_no_weights(saved: Path) -> None:
    info = describe(saved)
    assert (info.schema, info.task, info.size, info.num_classes) == (1, "detect", "n", 3)
    assert (info.names, info.image_size, info.num_keypoints) == (
        ("class_0", "class_1", "class_2"),
        320,
        None,
    )


def test_header_takes_other_weights_and_checks_their_keys(lively: Detector) -> None:
    averaged = {key: value * 0 for key, value in lively.state_dict().items()}
    assert not any(value.any() for value in checkpoint_header(lively, 64, averaged)["weights"].values())
    del averaged["backbone.stem.conv.weight"]
    with pytest.raises(ValueError, match="1 missing"):
        checkpoint_header(lively, 64, averaged)


def one_line(error: BaseException) -> str:
    text = str(error)
    assert "\n" not in text
    return text


class Bomb:
    """Unpickling this writes a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (self.target,)  # type: ignore[return-value]


@pytest.mark.parametrize("writer", ["torch", "pickle"])
def test_a_file_that_would_execute_code_is_refused_and_does_not(tmp_path: Path, writer: str) -> None:
    path, target = tmp_path / "evil.ckpt", tmp_path / "executed"
    if writer == "torch":
        torch.save({"lucid": Bomb(target)}, path)
    else:
        path.write_bytes(pickle.dumps({"lucid": Bomb(target)}))
    for read in (load, describe):
        with pytest.raises(ValueError, match=r"refused|no checkpoint") as caught:
            read(path)
        assert str(path) in one_line(caught.value)
    assert not target.exists()


def damaged(header: dict[str, object], **changes: object) -> dict[str, object]:
    return {"lucid": header | changes}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": 2}, "schema 2, this version reads 1"),
        ({"task": "depth"}, "unknown task 'depth'"),
        ({"size": "q"}, "unknown size 'q'"),
        ({"num_classes": 4}, "3 names for num_classes=4"),
        ({"names": "abc"}, "list of class names"),
        ({"weights": {"a": 1}}, "map names to tensors"),
        ({"weights": {}}, "missing"),
        ({"image_size": 33}, "image_size"),
    ],
)
def test_a_header_that_does_not_fit_is_refused_in_one_line(
    lively: Detector, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    path = tmp_path / "x.ckpt"
    torch.save(damaged(checkpoint_header(lively), **changes), path)
    with pytest.raises(ValueError, match=message) as caught:
        load(path)
    assert str(path) in one_line(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": "1"}, "schema '1'"),
        ({"task": 1}, "'task' must be text, got 1"),
        ({"size": None}, "'size' must be text, got None"),
        ({"names": [1, 2, 3]}, "list of class names"),
        ({"num_classes": 3.0}, "'num_classes' must be a whole number, got 3.0"),
        ({"image_size": "x"}, "'image_size' must be a whole number, got 'x'"),
        ({"image_size": True}, "'image_size' must be a whole number, got True"),
        ({"image_size": -32}, "'image_size' must be positive, got -32"),
        ({"num_keypoints": "17"}, "'num_keypoints' must be a whole number or None, got '17'"),
    ],
)
def test_header_values_of_another_type_are_refused_in_one_line(
    lively: Detector, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    path = tmp_path / "x.ckpt"
    torch.save(damaged(checkpoint_header(lively), **changes), path)
    for read in (load, describe):
        with pytest.raises(ValueError, match=message) as caught:
            read(path)
        assert str(path) in one_line(caught.value)


def test_missing_header_keys_are_named(lively: Detector, tmp_path: Path) -> None:
    header = checkpoint_header(lively)
    del header["names"], header["weights"]
    torch.save({"lucid": header}, tmp_path / "x.ckpt")
    with pytest.raises(ValueError, match="lacks names, weights"):
        load(tmp_path / "x.ckpt")


def test_mis_shaped_and_unknown_weights_are_named(lively: Detector, tmp_path: Path) -> None:
    header = checkpoint_header(lively)
    header["weights"]["backbone.stem.conv.weight"] = torch.zeros(2, 2)
    torch.save({"lucid": header}, tmp_path / "x.ckpt")
    with pytest.raises(ValueError, match=r"backbone.stem.conv.weight has shape \(2, 2\)"):
        load(tmp_path / "x.ckpt")
    header["weights"]["extra"] = torch.zeros(1)
    torch.save({"lucid": header}, tmp_path / "x.ckpt")
    with pytest.raises(ValueError, match=r"1 unknown \(extra\)"):
        load(tmp_path / "x.ckpt")


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 cut short"])
def test_files_of_another_kind_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.ckpt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="no checkpoint") as caught:
        load(path)
    one_line(caught.value)


def test_a_truncated_checkpoint_is_refused(saved: Path) -> None:
    saved.write_bytes(saved.read_bytes()[: saved.stat().st_size // 2])
    with pytest.raises(ValueError, match="checkpoint"):
        load(saved)


@pytest.mark.parametrize("read", [load, describe])
def test_damage_inside_the_archive_is_named_with_the_file(
    saved: Path, read: Callable[[Path], object]
) -> None:
    saved.write_bytes(saved.read_bytes().replace(b"backbone", b"back\xffone", 1))
    with pytest.raises(ValueError, match="damaged") as caught:
        read(saved)
    assert str(saved) in one_line(caught.value)


def test_a_damaged_directory_of_the_archive_is_named_with_the_file(saved: Path) -> None:
    content = saved.read_bytes()
    saved.write_bytes(content.replace(b"PK\x01\x02", b"\x00K\x01\x02", 1))
    with pytest.raises(ValueError, match="damaged") as caught:
        load(saved)
    assert str(saved) in one_line(caught.value)


def test_a_torchscript_file_is_told_by_what_it_is(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    path = tmp_path / "network.ts"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit itself
        torch.jit.save(torch.jit.script(torch.nn.Identity()), str(path))
    with pytest.raises(ValueError, match=r"TorchScript file.*\.torchscript"):
        load(path)
    assert not [one for one in recwarn if "torch.load" in str(one.message)]


def test_other_torch_files_are_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    torch.save({"state_dict": {}}, buffer)
    (tmp_path / "x.ckpt").write_bytes(buffer.getvalue())
    with pytest.raises(ValueError, match="no entry 'lucid'"):
        load(tmp_path / "x.ckpt")


def test_missing_files_and_folders_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no checkpoint at"):
        load(tmp_path / "absent.ckpt")
    with pytest.raises(ValueError, match="is a folder"):
        load(tmp_path)


@pytest.mark.parametrize(("donor_classes", "classes"), [(80, 2), (2, 80), (80, 90), (3, 3)])
def test_transfer_copies_what_fits_and_accounts_for_the_rest(donor_classes: int, classes: int) -> None:
    donor, detector = build_detector(num_classes=donor_classes), build_detector(num_classes=classes)
    fresh = {key: value.clone() for key, value in detector.state_dict().items()}
    transfer = load_weights(detector, donor.state_dict())
    state, given = detector.state_dict(), donor.state_dict()
    assert [row.key for row in transfer.rows] == list(state)
    for row in transfer.rows:
        fits = given[row.key].shape == fresh[row.key].shape
        assert row.action == ("copied" if fits else "shape differs")
        assert torch.equal(state[row.key], given[row.key] if fits else fresh[row.key])
    kept = [row.key for row in transfer.rows if row.action != "copied"]
    assert all(".cls." in key for key in kept)
    assert bool(kept) == (donor_classes != classes)
    assert transfer.count("copied") + transfer.count("shape differs") == len(state)


def test_transfer_reports_missing_and_unused_tensors(detector: Detector) -> None:
    weights = dict(build_detector(num_classes=3).state_dict())
    weights["stranger"] = weights.pop("backbone.stem.conv.weight")
    transfer = load_weights(detector, weights)
    assert (transfer.count("missing"), transfer.count("unused")) == (1, 1)
    assert "stranger: unused" in str(transfer)
    assert "backbone.stem.conv.weight: missing" in str(transfer)


def test_transfer_reads_a_checkpoint(lively: Detector, saved: Path) -> None:
    other = build_detector(num_classes=3)
    load_weights(other, saved)
    assert torch.equal(other.backbone.stem.conv.weight, lively.backbone.stem.conv.weight)


def test_transfer_refuses_weights_of_another_network(detector: Detector) -> None:
    with pytest.raises(ValueError, match="no tensor of the weights fits detector detect-n"):
        load_weights(detector, {"other": torch.zeros(3)})


def test_loaded_detector_has_the_published_size(saved: Path) -> None:
    assert count(load(saved)) == count("detect", "n", num_classes=3, image_size=320)
