"""Time and memory of opening a large COCO file, beside pycocotools, each in a process of its own.

    python benchmarks/opening.py [--images 120000] [--per-image 10] [--json]

Writes a file of so many instances with outlines to a temporary folder and opens it for detect by both. Also walks the
labels of the catalogue three times in a forked worker and prints how its private memory grows.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

from lucid_data import Catalog, open_catalog


def write(path: Path, images: int, per_image: int) -> None:
    """Write the file, one picture at a time."""
    with path.open("w", encoding="utf-8") as file:
        file.write('{"images": [')
        file.write(
            ",".join(
                f'{{"id": {i}, "file_name": "{i:012d}.jpg", "height": 480, "width": 640}}'
                for i in range(1, images + 1)
            )
        )
        file.write(
            '], "categories": [' + ",".join(f'{{"id": {c}, "name": "c{c}"}}' for c in range(1, 81)) + "],"
        )
        file.write('"annotations": [')
        for i in range(images):
            rows = []
            for k in range(per_image):
                n, x, y = i * per_image + k + 1, (i * 7 + k * 53) % 560, (i * 11 + k * 31) % 400
                ring = ",".join(f"{x + (3 * p) % 60}.25,{y + (5 * p) % 60}.5" for p in range(12))
                rows.append(
                    f'{{"id": {n}, "image_id": {i + 1}, "category_id": {n % 80 + 1}, "iscrowd": 0, "area": 900.5,'
                    f'"bbox": [{x}.5, {y}.25, 60.0, 60.0], "segmentation": [[{ring}]]}}'
                )
            file.write(("," if i else "") + ",".join(rows))
        file.write("]}")


def measured(send: Connection, kind: str, path: str) -> None:
    """Open ``path`` by ``kind`` and send seconds, peak and final MiB above the start."""
    before = rss()
    start = time.perf_counter()
    if kind == "pycocotools":
        from pycocotools.coco import COCO

        held = COCO(path)
    else:
        held = open_catalog(path, "all")
    took = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    send.send(
        {
            "seconds": took,
            "peak_mib": peak - before,
            "held_mib": rss() - before,
            "n": len(getattr(held, "imgs", ())) or len(held),
        }
    )


def rss() -> float:
    """Return the resident MiB of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def walk(send: Connection, catalog: Catalog) -> None:
    """Read all labels three times and send the resident MiB after each."""
    sizes = []
    for _ in range(3):
        for index in range(0, len(catalog), 3):
            catalog.targets(index)
        sizes.append(rss())
    send.send(sizes)


def main() -> None:
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=120_000)
    parser.add_argument("--per-image", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    out: dict[str, object] = {"instances": args.images * args.per_image}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "images").mkdir()
        # the reader looks for the first pictures to find their folder, not into them
        (Path(folder) / "images" / "000000000001.jpg").touch()
        path = Path(folder) / "annotations.json"
        write(path, args.images, args.per_image)
        out["file_mib"] = path.stat().st_size / 2**20
        for kind in ("lucid_data", "pycocotools"):
            out[kind] = in_process("spawn", measured, kind, str(path))
        out["worker_mib"] = in_process("fork", walk, open_catalog(path, "all"))
    if args.json:
        print(json.dumps(out))
    else:
        for name, value in out.items():
            print(name, value)


def in_process(method: str, task: object, *arguments: object) -> object:
    """Return what ``task`` sends from a process of its own."""
    context = multiprocessing.get_context(method)
    receive, send = context.Pipe(False)
    process = context.Process(target=task, args=(send, *arguments))
    process.start()
    send.close()
    answer = receive.recv()
    process.join()
    return answer


if __name__ == "__main__":
    main()
