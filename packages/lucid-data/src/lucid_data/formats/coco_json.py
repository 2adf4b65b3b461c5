"""A COCO file as text: whole, or with its annotations one at a time.

``load_document`` builds everything, for those who hand the document on. ``CocoFile`` keeps annotations as the bytes
they are in the file and decodes one when it is asked for, so that a file of a million instances opens in little more
memory than its pages take.
"""

from __future__ import annotations

import codecs
import json
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

_CHUNK = 1 << 22


def load_document(path: str | Path) -> dict[str, Any]:
    """Return the COCO document at ``path``; a byte-order mark is allowed.

    Raises FileNotFoundError, and ValueError for text that is not JSON or has no ``images``, ``annotations``
    and ``categories`` lists of objects.
    """
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"COCO file {file} does not exist")
    try:
        document = json.loads(file.read_bytes().decode("utf-8-sig"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{file} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ValueError(f"{file} holds a {type(document).__name__}, not a COCO document")
    for key in ("images", "annotations", "categories"):
        if not isinstance(document.get(key), list):
            has = ", ".join(sorted(document)) or "nothing"
            raise ValueError(f"{file} has no list {key!r} (it has {has}); add it or rename the key")
        for position, entry in enumerate(document[key]):
            if not isinstance(entry, dict):
                raise ValueError(f"{file}, {key}[{position}]: must be an object, got {entry!r}")
    return document


def json_text(document: Any) -> str:
    """Return a document as JSON that UTF-8 can hold: a name of bytes that are no text is escaped."""
    text = json.dumps(document, ensure_ascii=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(document)
    return text


class Annotation(msgspec.Struct, gc=False):
    """The fields of an annotation that readers look at; what is not stated is None, or UNSET for an outline."""

    id: Any = None
    image_id: Any = None
    category_id: Any = None
    bbox: Any = None
    area: Any = None
    iscrowd: Any = None
    difficult: Any = None
    keypoints: Any = None
    visible_fraction: Any = None


class OutlinedAnnotation(Annotation, gc=False):
    """The same with its outline."""

    segmentation: Any = msgspec.UNSET


class _Parts(msgspec.Struct):
    images: list[dict[str, Any]]
    categories: list[dict[str, Any]]
    annotations: list[msgspec.Raw]


class CocoFile:
    """A COCO file whose ``images`` and ``categories`` are lists of dictionaries; ``annotations()`` yields the rest.

    Raises as ``load_document``.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise FileNotFoundError(f"COCO file {self.path} does not exist")
        self._annotations: list[msgspec.Raw] | list[dict[str, Any]]
        try:
            parts = msgspec.json.decode(_pages(self.path), type=_Parts)
        except (msgspec.DecodeError, ValueError, RecursionError):
            # either broken, and this says how, or with the NaN that Python writes and JSON does not know
            document = load_document(self.path)
            self.images, self.categories = document["images"], document["categories"]
            self._annotations = document["annotations"]
        else:
            self.images, self.categories, self._annotations = (
                parts.images,
                parts.categories,
                parts.annotations,
            )

    def annotations(self, *, outlines: bool = True) -> Iterator[Annotation | OutlinedAnnotation]:
        """Yield the annotations in file order, without their outlines where those are not wanted."""
        kind = OutlinedAnnotation if outlines else Annotation
        decode = msgspec.json.Decoder(kind).decode
        for position, one in enumerate(self._annotations):
            if not isinstance(one, msgspec.Raw):
                yield _picked(one, kind)
                continue
            try:
                yield decode(one)
            except msgspec.DecodeError:
                value = json.loads(bytes(one))
                if not isinstance(value, dict):
                    raise ValueError(
                        f"{self.path}, annotations[{position}]: must be an object, got {value!r}"
                    ) from None
                yield _picked(value, kind)


def _picked(value: Any, kind: type[Annotation]) -> Annotation:
    return kind(**{name: value[name] for name in kind.__struct_fields__ if name in value})


def _pages(path: Path) -> memoryview:
    """Return the content of a file, mapped, without its byte-order mark; UnicodeDecodeError when it is not UTF-8."""
    with path.open("rb") as file:
        pages = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(pages), _CHUNK):
        decoder.decode(pages[start : start + _CHUNK], start + _CHUNK >= len(pages))
    return pages[3:] if bytes(pages[:3]) == b"\xef\xbb\xbf" else pages
