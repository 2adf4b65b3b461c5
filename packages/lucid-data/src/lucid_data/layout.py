"""Where the pictures and the labels of a split lie: COCO, YOLO, Pascal VOC and DOTA trees told apart by looking.

The usual places are tried first, in one table per format; a root that fits two formats is refused rather than
guessed. Only when none fits are the loose forms tried: one COCO JSON per split in any folder beside the pictures,
and a folder of VOC XML files without split lists (one split called ``all``). DOTA's ``labelTxt`` counts as usual for
oriented boxes; for other tasks it comes last, because upright boxes often lie beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import get_args

from lucid_data.source import SPLIT_SPELLINGS, WHOLE, Layout, Source, spellings
from lucid_data.tasks import TASK_NEEDS, as_task

_IMAGE_FOLDERS = ("images", "JPEGImages", "imgs", "data", ".")
_JSON_FORMS = ("instances_{s}", "instances_{s}2017", "{s}", "{s}2017", "annotations_{s}", "{s}_annotations")
_WHOLE_JSONS = ("annotations.json", "instances.json", "_annotations.coco.json", "coco.json", "labels.json")
_VOC_FOLDERS = ("JPEGImages", "Annotations")
_QUAD_FOLDERS = ("labelTxt", "labelTxt-v1.0", "labelTxt-v1.5", "labelTxt-v2.0")
_XML_FOLDERS = ("Annotations", "annotations", "annotations_voc", "xml")


_Search = Callable[[Path, str, bool, list[Path]], "Source | None"]


def find_source(
    path: str | Path, split: str, *, layout: str | None = None, keypoints: bool = False, rboxes: bool = False
) -> Source:
    """Return the files of ``split`` under ``path`` (a folder, a COCO JSON or a YOLO dataset file).

    ``layout`` skips the guess between formats; ``keypoints`` prefers COCO's person-keypoint files, ``rboxes`` looks
    for DOTA text as well. Raises FileNotFoundError listing every place tried, ValueError when two formats fit or
    ``layout`` is unknown.
    """
    found = fitting_sources(path, split, layout=layout, keypoints=keypoints, rboxes=rboxes)
    if len(found) > 1:
        kinds = " and ".join(source.layout for source in found)
        raise ValueError(f"{path} fits {kinds}; choose one with --layout (layout=)")
    return found[0]


def fitting_sources(
    path: str | Path, split: str, *, layout: str | None = None, keypoints: bool = False, rboxes: bool = False
) -> list[Source]:
    """Return the files of ``split`` in every format that fits, at least one; errors as ``find_source``."""
    root = Path(path)
    if layout is not None and layout not in get_args(Layout):
        raise ValueError(f"unknown layout {layout!r}; choose one of {', '.join(get_args(Layout))}")
    if not root.exists():
        raise FileNotFoundError(f"data set {root} does not exist")
    if root.is_file():
        return [_of_file(root, split, layout)]
    tried: list[Path] = []
    usual: list[tuple[str, _Search]] = [("coco", _coco), ("yolo", _yolo), ("voc", _voc)]
    if rboxes:
        usual.append(("dota", _dota))
    for searches in (usual, [("coco", _loose_coco), ("voc", _loose_voc)], [("dota", _dota)]):
        found = [
            source
            for name, search in searches
            if layout in (None, name) and (source := search(root, split, keypoints, tried)) is not None
        ]
        if found:
            return found
    if layout in (None, "voc"):
        _require_voc_folders(root, split)
    places = list(dict.fromkeys(str(place.relative_to(root)) for place in tried))
    more = f" and {len(places) - 6} other places" if len(places) > 6 else ""
    looked = f"; tried {', '.join(places[:6])}{more}" if places else ""
    if there := available_splits(root):
        known = ", ".join(map(repr, there))
        raise FileNotFoundError(f"no split {split!r} in {root}; choose {known} with --split (split=){looked}")
    if (root / "images").is_dir() and (root / "labels").is_dir():
        raise FileNotFoundError(
            f"{root} has images and labels, but no data.yaml that names the classes; "
            "write one with path, train, val and names"
        )
    raise FileNotFoundError(f"no labelled data set of a known format in {root}{looked}")


def available_splits(
    path: str | Path, task: str = "detect", *, layout: Layout | None = None
) -> tuple[str, ...]:
    """Return the split names that ``open_catalog`` finds under ``path`` for ``task``, the usual ones first.

    ``layout`` looks for that format alone. Empty when nothing is recognised; FileNotFoundError when ``path`` does not
    exist.

    >>> available_splits("scenes")
    ('train', 'val')
    """
    root = Path(path)
    points = TASK_NEEDS[as_task(task)].keypoints
    if not root.exists():
        raise FileNotFoundError(f"data set {root} does not exist")
    if root.is_file():
        return (WHOLE,) if root.suffix == ".json" else _yaml_splits(root)

    def found(splits: Iterable[str], searches: Mapping[Layout, _Search]) -> list[str]:
        wanted = [search for kind, search in searches.items() if layout in (None, kind)]
        return [split for split in splits if any(search(root, split, points, []) for search in wanted)]

    names = found(SPLIT_SPELLINGS, {"coco": _coco, "yolo": _yolo, "voc": _voc})
    lists = root / "ImageSets" / "Main"
    voc = layout in (None, "voc") and all((root / name).is_dir() for name in _VOC_FOLDERS)
    if voc and lists.is_dir():
        names += [p.stem for p in sorted(lists.glob("*.txt")) if _is_plain_list(p)]
    every = (*SPLIT_SPELLINGS, WHOLE)
    names = names or found(every, {"coco": _loose_coco, "voc": _loose_voc}) or found(every, {"dota": _dota})
    return tuple(dict.fromkeys(names))


def dataset_file(root: Path) -> Path | None:
    """Return the YOLO dataset file of a folder: ``data.yaml``, else the only YAML file there."""
    for name in ("data.yaml", "data.yml", "dataset.yaml"):
        if (root / name).is_file():
            return root / name
    others = sorted((*root.glob("*.yaml"), *root.glob("*.yml")))
    return others[0] if len(others) == 1 else None


def _of_file(file: Path, split: str, layout: str | None) -> Source:
    root = file.parent
    if file.suffix in (".yaml", ".yml") and layout in (None, "yolo"):
        return Source("yolo", split, root, (), file)
    if file.suffix == ".json" and layout in (None, "coco"):
        return Source("coco", split, root, coco_folders(file, split), file)
    raise ValueError(f"{file} is neither a COCO .json nor a YOLO .yaml file")


def coco_folders(file: Path, split: str) -> tuple[Path, ...]:
    """Return the folders that may hold the pictures of a COCO JSON given by its path."""
    parents = dict.fromkeys((file.parent, file.parent.parent))
    folders = [p / name for p in parents for name in (*_near(split, file), *_IMAGE_FOLDERS)]
    return tuple(folder for folder in folders if folder.is_dir())


def coco_files(root: Path) -> list[Path]:
    """Return the JSON files of a folder and its ``annotations`` that have COCO's lists, judged by their text."""
    files = [*sorted(root.glob("*.json")), *sorted((root / "annotations").glob("*.json"))]
    return [f for f in files if all(word in f.read_bytes() for word in (b'"images"', b'"categories"'))]


def _near(split: str, file: Path) -> tuple[str, ...]:
    stem = file.stem.removeprefix("person_keypoints_").removeprefix("instances_")
    names = dict.fromkeys((stem, *(s + y for s in spellings(split) for y in ("", "2017"))))
    return tuple(place for name in names for place in (f"images/{name}", name))


def _coco(root: Path, split: str, keypoints: bool, tried: list[Path]) -> Source | None:
    prefixes = ("person_keypoints_", "instances_") if keypoints else ("instances_",)
    for s in spellings(split):
        for prefix in prefixes:
            for images, stem in (
                (f"{s}2017", f"{s}2017"), (s, s), (f"images/{s}", s), (f"images/{s}2017", f"{s}2017"),
            ):  # fmt: skip
                labels = root / "annotations" / f"{prefix}{stem}.json"
                tried += [root / images, labels]
                if labels.is_file() and (root / images).is_dir():
                    return Source("coco", split, root, (root / images,), labels)
        labels = root / s / "_annotations.coco.json"
        tried.append(labels)
        if labels.is_file():
            return Source("coco", split, root, (root / s,), labels)
    return None


def _yolo(root: Path, split: str, keypoints: bool, tried: list[Path]) -> Source | None:
    file = dataset_file(root)
    tried.append(root / "data.yaml")
    if file is None:
        return None
    if split in _yaml_splits(file):
        return Source("yolo", split, root, (), file)
    for s in spellings(split):
        for images, labels in ((f"{s}/images", f"{s}/labels"), (f"images/{s}", f"labels/{s}")):
            tried += [root / images, root / labels]
            if (root / images).is_dir() and (root / labels).is_dir():
                return Source("yolo", split, root, (root / images,), file)
    return None


def _yaml_splits(file: Path) -> tuple[str, ...]:
    from lucid_data.formats.yolo import read_dataset_file

    return read_dataset_file(file).split_names


def _voc(root: Path, split: str, keypoints: bool, tried: list[Path]) -> Source | None:
    images, labels = (root / name for name in _VOC_FOLDERS)
    for s in spellings(split):
        listing = root / "ImageSets" / "Main" / f"{s}.txt"
        tried.append(listing)
        if listing.is_file() and labels.is_dir() and images.is_dir():
            return Source("voc", split, root, (images,), labels, listing)
    return None


def _require_voc_folders(root: Path, split: str) -> None:
    """Raise FileNotFoundError where a VOC list names the split but a folder it speaks of is not there."""
    for s in spellings(split):
        listing = root / "ImageSets" / "Main" / f"{s}.txt"
        missing = [name for name in _VOC_FOLDERS if not (root / name).is_dir()]
        if listing.is_file() and missing:
            raise FileNotFoundError(
                f"{listing} names a Pascal VOC split, but {root} has no folder {' and no folder '.join(missing)}"
            )


def _loose_coco(root: Path, split: str, keypoints: bool, tried: list[Path]) -> Source | None:
    folders = [root, *sorted(p for p in root.iterdir() if p.is_dir())]
    prefix = "person_keypoints_" if keypoints else "instances_"
    for s in spellings(split):
        forms = [form.format(s=s).replace("instances_", prefix) for form in _JSON_FORMS]
        if keypoints:
            forms += [form.format(s=s) for form in _JSON_FORMS]
        names = _WHOLE_JSONS if split == WHOLE else tuple(f"{form}.json" for form in forms)
        tried += [root / "*" / name for name in names]
        for folder in folders:
            for name in names:
                if (folder / name).is_file():
                    places = [root / place for place in (*_near(split, folder / name), *_IMAGE_FOLDERS)]
                    images = tuple(p for p in dict.fromkeys((*places, folder)) if p.is_dir())
                    return Source("coco", split, root, images, folder / name)
    return None


def _loose_voc(root: Path, split: str, keypoints: bool, tried: list[Path]) -> Source | None:
    images = tuple(root / name for name in ("JPEGImages", *_IMAGE_FOLDERS) if (root / name).is_dir())
    for name in _XML_FOLDERS:
        labels = root / name
        if split == WHOLE and labels.is_dir() and next(labels.glob("*.xml"), None) is not None:
            return Source("voc", split, root, images, labels)
    return None


def _dota(root: Path, split: str, keypoints: bool, tried: list[Path]) -> Source | None:
    places: list[tuple[str, str]] = []
    for s in spellings(split):
        places += [(f"{s}/images", f"{s}/{name}") for name in _QUAD_FOLDERS]
        places += [(f"images/{s}", f"{name}/{s}") for name in _QUAD_FOLDERS]
    if split == WHOLE:
        places = [("images", name) for name in _QUAD_FOLDERS]
    for images, labels in places:
        tried += [root / images, root / labels]
        if (root / images).is_dir() and any((root / labels).glob("*.txt")):
            return Source("dota", split, root, (root / images,), root / labels)
    return None


def dota_label_folders(root: Path) -> list[Path]:
    """Return the DOTA label folders of every split under ``root``."""
    found = (_dota(root, split, False, []) for split in (*SPLIT_SPELLINGS, WHOLE))
    return [source.labels for source in found if source is not None]


def _is_plain_list(file: Path) -> bool:
    """Tell a split list from VOC's per-class lists, whose lines carry a second column."""
    with file.open(encoding="utf-8", errors="replace") as lines:
        return all(len(line.split()) < 2 for line, _ in zip(lines, range(20), strict=False))
