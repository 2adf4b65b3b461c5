"""Time of a training sample as a multiple of one JPEG decode of the same photographs, one thread, one process.

    python benchmarks/loader.py DATA [--samples 120] [--image-size 640] [--task detect] [--json]

Every row makes the samples of one epoch in its order, mosaic on. Decoding is timed before and after each row, for
machines are not quiet; the multiple is of the mean of the two.
"""

from __future__ import annotations

import argparse
import json
import time

import torch

from lucid_data import Catalog, TrainPipeline, cache_pictures, open_catalog, policy_for

ROWS = {
    "plain": (None, False),
    "decoded cache": ("decoded", False),
    "prepared cache": ("prepared", False),
    "device colour": (None, True),
    "decoded cache, device colour": ("decoded", True),
    "prepared cache, device colour": ("prepared", True),
}


def decode_ms(catalog: Catalog, count: int) -> float:
    """Return the mean milliseconds of reading one picture."""
    start = time.perf_counter()
    for index in range(count):
        catalog.image(index % len(catalog))
    return 1000 * (time.perf_counter() - start) / count


def sample_ms(pipeline: TrainPipeline, count: int) -> float:
    """Return the mean milliseconds of one sample of epoch 0, after a warm-up on the epoch before."""
    order = pipeline.order(0).tolist()
    for index in pipeline.order(1).tolist()[:8]:
        pipeline(1, index)
    start = time.perf_counter()
    for index in order[:count]:
        pipeline(0, index)
    return 1000 * (time.perf_counter() - start) / min(count, len(order))


def main() -> None:
    """Print one line per row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--split", default="train")
    parser.add_argument("--task", default="detect")
    parser.add_argument("--layout")
    parser.add_argument("--samples", type=int, default=120)
    parser.add_argument("--image-size", type=int, default=640)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    catalog = open_catalog(args.data, args.split, args.task, layout=args.layout)
    count = min(args.samples, len(catalog))
    out = {}
    for name, (kept, on_device) in ROWS.items():
        size = {"decoded": None, "prepared": args.image_size}.get(kept or "")
        cache = cache_pictures(catalog, size) if kept else None
        policy = policy_for("n", args.task)
        pipeline = TrainPipeline(catalog, args.image_size, policy, 0, cache=cache, device_color=on_device)
        before = decode_ms(catalog, count)
        took = sample_ms(pipeline, count)
        decode = (before + decode_ms(catalog, count)) / 2
        out[name] = {"sample_ms": took, "decode_ms": decode, "multiple": took / decode}
        if not args.json:
            print(f"{name:32} {took:8.2f} ms  {took / decode:6.2f} decodes of {decode:.2f} ms", flush=True)
    if args.json:
        print(json.dumps(out))


if __name__ == "__main__":
    main()
