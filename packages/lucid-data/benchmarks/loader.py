"""Time of a training sample as a multiple of one JPEG decode of the same photographs, one thread, one process.

    python benchmarks/loader.py DATA [--samples 120] [--image-size 640] [--task detect] [--layout L] [--json]

Every row makes the samples of one epoch in its order, mosaic on. Decoding is timed before and after each row, for
machines are not quiet; the multiple is of the mean of the two. The shares of the stages are of a second pass, which
times each of them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import torch

import lucid_data.pipeline
from lucid_data import Catalog, TrainPipeline, cache_pictures, open_catalog, policy_for

ROWS = {
    "plain": (None, False),
    "decoded cache": ("decoded", False),
    "prepared cache": ("prepared", False),
    "device colour": (None, True),
    "decoded cache, device colour": ("decoded", True),
    "prepared cache, device colour": ("prepared", True),
}


STAGES = {
    "decode": ("_loaded",),
    "draw": ("draw_upright", "compose", "warp", "mixup_image", "copy_paste"),
    "colour": ("jitter_color",),
    "labels": ("move_upright", "move_targets", "clip_targets", "cut_targets", "clip_crowd", "grid_masks"),
    "flip": ("flip_horizontal", "flip_vertical"),
}


def stage_shares(pipeline: TrainPipeline, count: int) -> dict[str, float]:
    """Return the share of each stage in the time of the samples of epoch 2; ``rest`` is draws and bookkeeping."""
    spent = dict.fromkeys(STAGES, 0.0)
    depth = [0]

    def timed(function: Callable[..., Any], stage: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            depth[0] += 1
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                depth[0] -= 1
                if not depth[0]:  # a stage inside a stage is the outer one's
                    spent[stage] += time.perf_counter() - start

        return call

    place = lucid_data.pipeline
    kept = {}
    for stage, names in STAGES.items():
        for name in names:
            owner = TrainPipeline if name == "_loaded" else place
            kept[owner, name] = getattr(owner, name)
            setattr(owner, name, timed(getattr(owner, name), stage))
    try:
        start = time.perf_counter()
        for index in pipeline.order(2).tolist()[:count]:
            pipeline(2, index)
        whole = time.perf_counter() - start
    finally:
        for (owner, name), function in kept.items():
            setattr(owner, name, function)
    shares = {stage: seconds / whole for stage, seconds in spent.items()}
    return shares | {"rest": 1.0 - sum(shares.values())}


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
        shares = stage_shares(pipeline, count)
        out[name] = {"sample_ms": took, "decode_ms": decode, "multiple": took / decode, "shares": shares}
        if not args.json:
            split = "  ".join(f"{stage} {100 * share:.0f} %" for stage, share in shares.items())
            print(
                f"{name:30} {took:7.2f} ms = {took / decode:5.2f} decodes of {decode:.2f} ms  {split}",
                flush=True,
            )
    if args.json:
        print(json.dumps(out))


if __name__ == "__main__":
    main()
