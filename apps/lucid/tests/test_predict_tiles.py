"""``lucid predict --tiles``: from tiles back to whole pictures, and on to a DOTA score."""

import json
import math
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from PIL import Image

from lucid_app.predict_tiles import require_fit
from lucid_data import open_catalog, read_image
from lucid_geometry import polygons_to_rboxes, rboxes_to_boxes
from lucid_models import ExportedPredictor, Predictions, build_detector, checkpoint_header
from lucid_train import ConfigError

HEIGHT, WIDTH = 150, 210
# bars of 40 x 14 px have a diagonal of 42.4: less than the overlap, so each shows whole on some tile, and less than
# the 60 px between centres, so none meets another
CUT = ("--patch", 96, "--overlap", 48)
CENTRES = [(30 + 60 * column, 32 + 60 * row) for row in (0, 1) for column in (0, 1, 2)]


def corners(x, y, angle, w=40, h=14):
    c, s = math.cos(angle), math.sin(angle)
    local = ((-w / 2, -h / 2), (w / 2, -h / 2), (w / 2, h / 2), (-w / 2, h / 2))
    return [(x + c * u - s * v, y + s * u + c * v) for u, v in local]


@pytest.fixture(scope="module")
def aerial(tmp_path_factory):
    """Two pictures of six bars, ships and small vehicles by turns."""
    root = tmp_path_factory.mktemp("aerial")
    for split, stems in {"train": ("a",), "val": ("b", "c")}.items():
        for folder in ("images", "labelTxt"):
            (root / split / folder).mkdir(parents=True)
        for number, stem in enumerate(stems):
            Image.new("RGB", (WIDTH, HEIGHT), (90, 90, 90)).save(root / split / "images" / f"{stem}.png")
            lines = []
            for at, (x, y) in enumerate(CENTRES):
                numbers = " ".join(f"{v:.4f}" for point in corners(x, y, 0.4 * at + number) for v in point)
                lines.append(f"{numbers} {('ship', 'small-vehicle')[at % 2]} 0\n")
            (root / split / "labelTxt" / f"{stem}.txt").write_text("".join(lines))
    return root


@pytest.fixture(scope="module")
def checkpoints(aerial, tmp_path_factory):
    """Write and return untrained checkpoints by task, with DOTA's classes; ``other`` has classes of its own."""
    folder = tmp_path_factory.mktemp("checkpoints")
    names = open_catalog(aerial, "val", "obb").class_names
    for task, called in {"obb": names, "detect": names, "segment": names, "other": ("ship", "car")}.items():
        detector = build_detector("obb" if task == "other" else task, "n", names=list(called), image_size=96)
        torch.save({"lucid": checkpoint_header(detector)}, folder / f"{task}.ckpt")
    return folder


class Oracle:
    """Finds on each tile the labels that the tile set states, whole objects first."""

    confidence = 0.25

    def __init__(self, labels: Path, oriented: bool = True) -> None:
        document = json.loads(labels.read_text())
        self.names = tuple(c["name"] for c in document["categories"])
        self.rows = {image["id"]: [] for image in document["images"]}
        for annotation in document["annotations"]:
            self.rows[annotation["image_id"]].append(annotation)
        self.turns, self.steps, self.oriented = iter(sorted(self.rows)), [], oriented

    def __call__(self, images):
        self.steps.append(len(images))
        return [self.one(image, self.rows[next(self.turns)]) for image in images]

    def one(self, image, rows):
        scores = torch.tensor([row["visible_fraction"] for row in rows])
        labels = torch.tensor([row["category_id"] - 1 for row in rows]).long()
        size, rboxes = tuple(image.shape[1:]), None
        if self.oriented:
            quads = torch.tensor([row["segmentation"][0] for row in rows]).view(-1, 4, 2)
            rboxes = polygons_to_rboxes(quads) if len(rows) else torch.zeros(0, 5)
            boxes = rboxes_to_boxes(rboxes)
        else:
            boxes = torch.tensor([row["bbox"] for row in rows]).view(-1, 4)
            boxes = torch.cat([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1)
        highest = max(scores.tolist(), default=0.0)
        return Predictions(boxes, scores, labels, self.names, size, rboxes=rboxes, highest_score=highest)


@pytest.fixture
def oracle(monkeypatch):
    def stand_in(labels, oriented=True):
        found = Oracle(labels, oriented)
        monkeypatch.setattr("lucid_app.predict.opened", lambda *_: found)
        return found

    return stand_in


def tiled(lucid, source, *words):
    status, _, err = lucid("data", "tile", source, "tiles", *CUT, *words)
    assert status == 0, err
    return lucid.folder / "tiles" / "annotations"


def test_tiles_become_one_record_per_picture_and_task1_files_that_score_one(
    lucid, aerial, checkpoints, oracle
):
    found = oracle(tiled(lucid, aerial) / "instances_val.json")
    words = ("--tiles", "tiles", "--batch", 5, "--draw", "--output", "found", "--task1", "results", "--json")
    status, out, err = lucid("predict", checkpoints / "obb.ckpt", *words)
    assert (status, err) == (0, "")
    document = json.loads(out)
    assert document == json.loads((lucid.folder / "found" / "predictions.json").read_text())
    assert (document["info"]["tiles"], document["info"]["split"]) == ("tiles", "val")
    # 96 px steps of 48 cover 210 x 150 px in 4 x 3 tiles
    assert found.steps == [5, 5, 5, 5, 4]
    pictures = [aerial / "val" / "images" / name for name in ("b.png", "c.png")]
    assert [record["image"] for record in document["images"]] == [str(path.resolve()) for path in pictures]
    for number, record in enumerate(document["images"]):
        assert record["image_size"] == [HEIGHT, WIDTH]
        assert record["highest_score"] == record["detections"][0]["score"]
        whole = [one for one in record["detections"] if one["score"] > 0.999]
        assert len(whole) == len(CENTRES)
        for at, centre in enumerate(CENTRES):
            one = min(whole, key=lambda one: math.dist(one["rbox"][:2], centre))
            assert one["rbox"][:4] == pytest.approx([*centre, 40, 14], abs=0.01)
            assert math.sin(one["rbox"][4] - 0.4 * at - number) == pytest.approx(0, abs=1e-3)
            assert one["name"] == ("ship", "small vehicle")[at % 2]
            xs, ys = zip(*corners(*centre, 0.4 * at + number), strict=True)
            assert one["box"] == pytest.approx([min(xs), min(ys), max(xs), max(ys)], abs=0.02)
    for path in pictures:
        drawn = read_image(lucid.folder / "found" / path.name)
        assert drawn.shape == (3, 3 * HEIGHT, 3 * WIDTH)  # small drawings are enlarged
        assert not torch.equal(drawn[:, ::3, ::3], read_image(path))

    status, out, _ = lucid("score", aerial / "val", "results", "--kind", "dota", "--json")
    report = json.loads(out)["report"]["dota"]
    assert (report["images"], report["ground_truths"], report["dropped"]) == (2, 2 * len(CENTRES), 0)
    assert (report["voc07_map_50"], report["voc12_map_75"]) == (1, 1)


def test_tiles_of_several_scales_are_put_together_in_the_pixels_of_the_picture(
    lucid, aerial, checkpoints, oracle
):
    oracle(tiled(lucid, aerial, "--scale", 1, "--scale", 0.5, "--split", "val") / "instances_val.json")
    words = ("--tiles", "tiles", "--task1", "results", "--quiet")
    assert lucid("predict", checkpoints / "obb.ckpt", *words)[0] == 0
    _, out, _ = lucid("score", aerial / "val", "results", "--kind", "dota", "--json")
    assert json.loads(out)["report"]["dota"]["voc12_map_75"] == 1
    document = json.loads((lucid.folder / "predictions" / "predictions.json").read_text())
    for record in document["images"]:
        assert sum(one["score"] > 0.999 for one in record["detections"]) == len(CENTRES)


def test_upright_boxes_are_put_together_too(lucid, aerial, checkpoints, oracle):
    oracle(tiled(lucid, aerial, "--task", "detect", "--split", "val") / "instances_val.json", oriented=False)
    status, out, _ = lucid("predict", checkpoints / "detect.ckpt", "--tiles", "tiles", "--json")
    assert status == 0
    for number, record in enumerate(json.loads(out)["images"]):
        assert record["highest_score"] == record["detections"][0]["score"]
        whole = [one for one in record["detections"] if one["score"] > 0.999]
        assert len(whole) == len(CENTRES)
        assert "rbox" not in whole[0]
        for at, centre in enumerate(CENTRES):
            xs, ys = zip(*corners(*centre, 0.4 * at + number), strict=True)
            wanted = [min(xs), min(ys), max(xs), max(ys)]
            assert min(max(map(abs, map(float.__sub__, one["box"], wanted))) for one in whole) < 0.02


def test_a_real_network_looks_at_tiles(lucid, aerial, checkpoints):
    tiled(lucid, aerial, "--split", "val")
    words = ("--tiles", "tiles", "--conf", 0, "--max-detections", 3, "--device", "cpu", "--task1", "results")
    status, out, err = lucid("predict", checkpoints / "obb.ckpt", *words)
    assert status == 0, err
    assert "written results" in out
    document = json.loads((lucid.folder / "predictions" / "predictions.json").read_text())
    assert all(0 < len(record["detections"]) <= 3 * 12 for record in document["images"])
    lines = [line for file in (lucid.folder / "results").iterdir() for line in file.read_text().splitlines()]
    assert len(lines) == sum(len(record["detections"]) for record in document["images"])


@pytest.mark.parametrize(
    ("model", "words", "status", "said"),
    [
        ("obb", [], 2, "nothing to look at; give images, folders or globs, or --tiles FOLDER"),
        (
            "obb",
            ["x.png", "--tiles", "tiles"],
            2,
            "--tiles tiles: takes the place of x.png; give one of the two",
        ),
        ("obb", ["x.png", "--split", "val"], 2, "--split val: only with --tiles"),
        ("obb", ["x.png", "--task1", "r"], 2, "--task1 r: only with --tiles"),
        ("obb", ["x.png", "--no-captions"], 2, "--no-captions: only with --draw"),
        ("obb", ["--tiles", "nowhere"], 2, "--tiles nowhere: that is no data set of tiles"),
        (
            "obb",
            ["--tiles", "empty"],
            2,
            "--tiles empty: that is no data set of tiles; lucid data tile makes one",
        ),
        ("obb", ["--tiles", "scenes"], 1, "image 1 has no source_image and window; it is no tile"),
        ("obb", ["--tiles", "tiles", "--split", "test"], 1, "no split 'test' in tiles"),
        (
            "segment",
            ["--tiles", "tiles"],
            2,
            "segment.ckpt is for segment; tiles are put together for obb and detect",
        ),
        ("detect", ["--tiles", "tiles", "--task1", "r"], 2, "--task1 r: "),
        ("other", ["--tiles", "tiles"], 1, "tiles: class 0 is 'plane', but 'ship' in "),
        ("obb", ["--tiles", "tiles", "--task1", "full"], 2, "--task1 full: there is something in it"),
        ("obb", ["--tiles", "tiles", "--task1", "full/a.txt"], 2, "--task1 full/a.txt: full/a.txt is a file"),
    ],
)
def test_what_does_not_fit_is_one_line_and_nothing_is_written(
    lucid, aerial, checkpoints, scenes, monkeypatch, model, words, status, said
):
    tiled(lucid, aerial, "--split", "val")
    (lucid.folder / "empty").mkdir()
    (lucid.folder / "full").mkdir()
    (lucid.folder / "full" / "a.txt").write_text("")
    (lucid.folder / "scenes").symlink_to(scenes)
    before = lucid.files()
    code, _, err = lucid("predict", checkpoints / f"{model}.ckpt", *words)
    assert code == status
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert lucid.files() == before


def test_an_exported_file_says_its_own_task():
    file = ExportedPredictor.__new__(ExportedPredictor)
    file.info = SimpleNamespace(task="pose")
    with pytest.raises(ConfigError, match=r"m\.onnx is for pose; tiles are put together for obb and detect"):
        require_fit(SimpleNamespace(folder="tiles"), Path("m.onnx"), file, None)


def test_pictures_that_are_not_as_they_were_are_not_drawn_on(lucid, aerial, checkpoints):
    source = lucid.folder / "aerial"
    for path in sorted(aerial.rglob("*.*")):
        (source / path.relative_to(aerial)).parent.mkdir(parents=True, exist_ok=True)
        (source / path.relative_to(aerial)).write_bytes(path.read_bytes())
    labels = tiled(lucid, source, "--split", "val") / "instances_val.json"
    picture = source / "val" / "images" / "b.png"

    def refused():
        status, _, err = lucid("predict", checkpoints / "obb.ckpt", "--tiles", "tiles", "--draw")
        assert status == 2
        assert not (lucid.folder / "predictions").exists()
        return err

    Image.new("RGB", (HEIGHT, WIDTH)).save(picture)
    assert f"--draw: {picture} is not the picture of {HEIGHT} x {WIDTH} px" in refused()
    picture.unlink()
    assert f"--draw: {picture} is gone" in refused()
    document = json.loads(labels.read_text())
    del document["info"]["source_images"]
    labels.write_text(json.dumps(document))
    assert "instances_val.json does not say where the pictures lie" in refused()


def test_pictures_and_tiles_may_move_together(lucid, aerial, checkpoints, oracle):
    (lucid.folder / "old").mkdir()
    for path in sorted((aerial / "val").rglob("*.*")):
        place = lucid.folder / "old" / "aerial" / path.relative_to(aerial)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(path.read_bytes())
    assert lucid("data", "tile", "old/aerial", "old/tiles", *CUT)[0] == 0
    os.rename(lucid.folder / "old", lucid.folder / "new")
    oracle(lucid.folder / "new" / "tiles" / "annotations" / "instances_val.json")
    status, _, err = lucid("predict", checkpoints / "obb.ckpt", "--tiles", "new/tiles", "--draw")
    assert status == 0, err
    assert (lucid.folder / "predictions" / "b.png").is_file()


def test_pictures_that_were_turned_before_they_were_cut_are_turned_for_drawing(lucid, checkpoints, oracle):
    tag = Image.Exif()
    tag[0x0112] = 6  # stored lying, shown standing
    for part in ("images", "labels"):
        (lucid.folder / "in" / part / "val").mkdir(parents=True)
    Image.new("RGB", (WIDTH, HEIGHT)).save(lucid.folder / "in" / "images" / "val" / "p.jpg", exif=tag)
    (lucid.folder / "in" / "labels" / "val" / "p.txt").write_text("0 0.5 0.5 0.1 0.1\n")
    (lucid.folder / "in" / "data.yaml").write_text("val: images/val\nnames: [car]\n")
    tiled(lucid, "in", "--task", "detect", "--split", "val")
    detector = build_detector("detect", "n", names=["car"], image_size=96)
    torch.save({"lucid": checkpoint_header(detector)}, lucid.folder / "one.ckpt")
    oracle(lucid.folder / "tiles" / "annotations" / "instances_val.json", oriented=False)
    status, out, err = lucid("predict", "one.ckpt", "--tiles", "tiles", "--draw", "--json")
    assert status == 0, err
    assert json.loads(out)["images"][0]["image_size"] == [WIDTH, HEIGHT]
    assert read_image(lucid.folder / "predictions" / "p.jpg").shape == (3, 3 * WIDTH, 3 * HEIGHT)


def test_tiles_that_were_left_out_are_told(lucid, aerial, checkpoints, oracle):
    oracle(tiled(lucid, aerial, "--keep-empty", 0.5, "--split", "val") / "instances_val.json")
    status, _, err = lucid("predict", checkpoints / "obb.ckpt", "--tiles", "tiles", "--json")
    assert status == 0
    assert err == "tiles was cut with --keep-empty 0.5: parts of its pictures are not looked at\n"


def test_a_picture_name_that_task1_cannot_hold_leaves_no_folder(lucid, aerial, checkpoints, oracle):
    for path in sorted((aerial / "val").rglob("b.*")):
        place = lucid.folder / "in" / path.relative_to(aerial).with_stem("b 1")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(path.read_bytes())
    oracle(tiled(lucid, "in") / "instances_val.json")
    status, _, err = lucid("predict", checkpoints / "obb.ckpt", "--tiles", "tiles", "--task1", "results")
    assert status == 1
    assert "'b 1'" in err
    assert not (lucid.folder / "results").exists()


def test_two_pictures_of_one_name_are_not_written_as_one(lucid, aerial, checkpoints, oracle):
    labels = tiled(lucid, aerial, "--split", "val") / "instances_val.json"
    labels.write_text(labels.read_text().replace('"c.png"', '"more/b.png"'))
    oracle(labels)
    status, _, err = lucid("predict", checkpoints / "obb.ckpt", "--tiles", "tiles", "--task1", "results")
    assert status == 1
    assert "two pictures are called 'b'" in err
    assert not (lucid.folder / "results").exists()


def test_a_real_aerial_picture_scores_one_by_its_own_labels(lucid, checkpoints, oracle):
    root = Path(__file__).resolve().parents[3]
    sample = Path(os.environ.get("LUCID_SHARED", root.parent / "shared")) / "data" / "dota_sample" / "full"
    if not sample.is_dir():
        pytest.skip("the real data sets (../shared/data) are not here")
    status, _, err = lucid("data", "tile", sample, "tiles", "--patch", 800, "--overlap", 400)
    assert status == 0, err
    oracle(lucid.folder / "tiles" / "annotations" / "instances_train.json")
    words = ("--tiles", "tiles", "--split", "train", "--task1", "results", "--draw", "--json")
    status, out, err = lucid("predict", checkpoints / "obb.ckpt", *words)
    assert status == 0, err
    (record,) = json.loads(out)["images"]
    assert record["image_size"] == [1182, 1111]
    _, out, _ = lucid("score", sample, "results", "--kind", "dota", "--json")
    report = json.loads(out)["report"]["dota"]
    assert report["ground_truths"] == 536
    # ships that lie close enough together suppress each other
    assert report["voc07_map_50"] > 0.99
