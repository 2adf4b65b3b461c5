"""``lucid bench open``: time and memory of opening a large COCO file, beside pycocotools."""

import io
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated, Any

import typer

from lucid_app.bench.made import write_large
from lucid_app.bench.options import JsonOption, OutputOption, QuickOption, prepare
from lucid_app.bench.record import Record, command_line, finish, machine, today
from lucid_app.checks import check_at_least
from lucid_data import Catalog, open_catalog

REFERENCE = "pycocotools.coco.COCO"
LUCID = "open_catalog"
AGAIN = "open_catalog, labels kept in a store"


def opening(
    context: typer.Context,
    images: Annotated[int, typer.Option(help="Images in the file.")] = 120_000,
    per_image: Annotated[int, typer.Option(help="Outlined instances of each.")] = 10,
    quick: QuickOption = False,
    as_json: JsonOption = False,
    output: OutputOption = None,
) -> None:
    """Measure how long a large COCO file takes to open and what it holds in memory, beside pycocotools.

    A file is generated in a temporary folder and opened by each in a process of its own; memory is above that of the
    process before. The limit is one read of the file's bytes. Then a forked worker reads a third of all labels three
    times over.

    Examples:
        lucid bench open

        lucid bench open --images 10000
    """
    check_at_least("--images", images, 1)
    check_at_least("--per-image", per_image, 1)
    prepare("cpu", None, output)
    if quick:
        images, per_image = 20, 2
    with tempfile.TemporaryDirectory() as folder:
        path, store = Path(folder) / "set" / "labels" / "all.json", Path(folder) / "store"
        path.parent.mkdir(parents=True)
        write_large(path, images, per_image)
        size = path.stat().st_size / 2**20
        start = time.perf_counter()
        with path.open("rb") as file:
            while file.read(1 << 24):
                pass
        reading = time.perf_counter() - start
        in_process("spawn", measured_opening, AGAIN, str(path), str(store))  # fills the store
        found = {
            name: in_process("spawn", measured_opening, name, str(path), str(store))
            for name in (REFERENCE, LUCID, AGAIN)
        }
        walked = in_process("fork", walk, open_catalog(path, "all")) if sys.platform == "linux" else []
    reference = found[REFERENCE]
    table = [
        {
            "": name,
            "s": round(one["seconds"], 2),
            "of pycocotools": round(one["seconds"] / reference["seconds"], 3),
            "peak, MiB": round(one["peak_mib"]),
            "held, MiB": round(one["held_mib"]),
        }
        for name, one in found.items()
    ]
    title = f"Opening {images * per_image:,} instances on {images:,} images"
    tables = {title: table}
    if walked:
        passes = [{"pass": n, "worker's memory, MiB": round(mib, 2)} for n, mib in enumerate(walked, 1)]
        tables["A worker that reads labels"] = passes
    share = 100 * reading / max(1e-9, found[LUCID]["seconds"])
    notes = (
        f"the file has {size:.1f} MiB; reading its bytes takes at least {reading:.3f} s here, {share:.1f} % of opening "
        "it: what takes the time is parsing",
    )
    record = Record("open", command_line(context), machine("cpu", ("pycocotools",)), tables, notes, today())
    finish(record, as_json, output)


def measured_opening(send: Connection, name: str, path: str, store: str) -> None:
    """Open ``path`` and send seconds, and peak and final MiB above the start."""
    index = import_module("pycocotools.coco").COCO
    before = resident_mib()
    start = time.perf_counter()
    if name == REFERENCE:
        with redirect_stdout(io.StringIO()):
            held = index(path)
    else:
        held = open_catalog(path, "all", label_store=store if name == AGAIN else None)
    taken = time.perf_counter() - start
    send.send({"seconds": taken, "peak_mib": peak_mib() - before, "held_mib": resident_mib() - before})
    del held


def peak_mib() -> float:
    """Return the most MiB that this process has held."""
    try:
        status = Path("/proc/self/status").read_text()
        # not ru_maxrss, which a process inherits from the one that started it
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 2**10
    except (OSError, StopIteration):
        unit = 2**20 if sys.platform == "darwin" else 2**10
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def resident_mib() -> float:
    """Return the resident MiB of this process; its peak where the system has no such file."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return pages * resource.getpagesize() / 2**20


def walk(send: Connection, catalog: Catalog) -> None:
    """Read a third of the labels three times and send the resident MiB after each pass."""
    sizes = []
    for _ in range(3):
        for index in range(0, len(catalog), 3):
            catalog.targets(index)
        sizes.append(resident_mib())
    send.send(sizes)


def in_process(method: str, task: Callable[..., None], *arguments: object) -> Any:
    """Return what ``task`` sends from a process of its own.

    Raises:
        ValueError: the process ended without an answer.
    """
    context: Any = multiprocessing.get_context(method)
    receive, send = context.Pipe(False)
    process = context.Process(target=task, args=(send, *arguments))
    process.start()
    send.close()
    try:
        answer = receive.recv()
    except EOFError as error:
        process.join()
        raise ValueError(f"{task.__name__}: its process ended with status {process.exitcode}") from error
    process.join()
    return answer
