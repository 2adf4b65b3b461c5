"""Findings about a Pascal VOC tree."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

from lucid_data.doctor.boxes import check_box
from lucid_data.doctor.findings import Findings
from lucid_data.doctor.pictures import Progress, examine_pictures
from lucid_data.formats.voc import VocFile, listed_stems, picture_names, read_voc_file
from lucid_data.source import Source


def check_voc(sources: list[Source], *, decode: bool, progress: Progress, found: Findings) -> None:
    """Add findings about split lists, XML files and pictures."""
    labels, images = sources[0].labels, sources[0].images
    folder = images[0] if images else sources[0].root
    paths = {path.stem: path for path in sorted(labels.glob("*.xml"))}
    named: set[str] = set()
    for source in sources:
        if source.listing is not None:
            for stem in listed_stems(source.listing):
                named.add(stem)
                if stem not in paths:
                    message = f"lists {stem!r}, but there is no {stem}.xml"
                    found.add(
                        "voc-no-xml", "error", source.listing, stem, message, "restore the file or unlist it"
                    )
    if named:
        for stem in sorted(set(paths) - named):
            message = "no split list names this file"
            found.add("voc-unlisted", "note", paths[stem], "", message, "list it, or ignore this")
    files: list[VocFile] = []
    for path in paths.values():
        try:
            files.append(read_voc_file(path))
        except ValueError as error:
            reason = str(error).removeprefix(f"{path}: ").removeprefix(f"{path}, ")
            found.add("voc-xml", "error", path, "", reason, "export the file again or correct it by hand")
    pictures = [folder / name for name in picture_names(folder, files)]
    known = examine_pictures(pictures, decode=decode, progress=progress, found=found)
    for file, picture in zip(files, pictures, strict=True):
        _check_file(file, picture, known[picture].size, found)
    _check_names(files, labels, found)


def _check_file(file: VocFile, picture: Path, size: tuple[int, int] | None, found: Findings) -> None:
    path = file.path
    if file.file_name and Path(file.file_name).stem != path.stem:
        message = f"<filename> says {file.file_name}, the file's own name fits {picture.name}"
        found.add(
            "voc-file-name", "warning", path, "filename", message, "correct it; the file's own name counts"
        )
    if min(file.size) <= 0:
        message = "no usable <size>"
        found.add(
            "voc-size-missing", "warning", path, "size", message, "add it; the picture's header is read"
        )
    elif size is not None and size != file.size:
        message = f"<size> says {file.size[1]} x {file.size[0]}, the picture is {size[1]} x {size[0]}"
        found.add("voc-size-differs", "warning", path, "size", message, "correct it; the picture counts")
    if not file.objects:
        found.add("voc-background", "note", path, "", "no objects", "nothing to do if the picture shows none")
    repeated = Counter((item.name, item.box) for item in file.objects)
    for number, item in enumerate(file.objects, 1):
        where = f"object {number} ({item.name})"
        if item.swapped:
            message = "a minimum corner lies beyond its maximum"
            found.add("voc-corners-swapped", "warning", path, where, message, "swap them; they are put right")
        if any(value != int(value) for value in item.box):
            message = f"corners with fractions: {item.box}"
            found.add("voc-fractions", "note", path, where, message, "nothing to do: they are kept")
        if repeated.pop((item.name, item.box), 0) > 1:
            message = "another object has the same class and box"
            found.add("voc-object-repeated", "warning", path, where, message, "delete one of them")
        check_box(item.box, size, "voc", path, where, found)


def _check_names(files: list[VocFile], labels: Path, found: Findings) -> None:
    spellings: defaultdict[str, set[str]] = defaultdict(set)
    for file in files:
        for number, item in enumerate(file.objects, 1):
            spellings[item.name.lower()].add(item.name)
            if item.padded:
                message = f"spaces around the class name {item.name!r}"
                found.add(
                    "voc-name-spaces",
                    "note",
                    file.path,
                    f"object {number}",
                    message,
                    "remove; they are ignored",
                )
    for names in spellings.values():
        if len(names) > 1:
            message = f"class names differ in case only: {', '.join(sorted(names))}"
            found.add(
                "voc-name-case",
                "warning",
                labels,
                "",
                message,
                "spell them alike; they count as classes each",
            )
