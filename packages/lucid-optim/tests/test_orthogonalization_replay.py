"""The two Newton-Schulz functions as recordings, without an optimizer: key, cache, and when they run natively."""

import gc
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from lucid_capture import Poison, Reason, TapeBackend, same_bytes
from lucid_optim import updates as updates_module
from lucid_optim.replay import orthogonalization_region, replayed


@pytest.fixture(autouse=True, scope="module")
def _short_collections() -> Iterator[None]:
    """Recording collects garbage; what was imported before need not be walked every time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@torch.no_grad()
def test_results_are_the_callers_memory_and_inputs_are_fresh() -> None:
    region = orthogonalization_region(TapeBackend(poison=Poison.SENTINEL))
    region.capacity = 4
    run = replayed(region)
    xs = [torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(i)) for i in range(4)]
    kept = [run.batched(x, 5, "quintic", "direct") for x in xs]
    for x, result in zip(xs, kept, strict=True):
        assert same_bytes(result, updates_module.orthogonalize_batch(x, 5, "quintic", "direct"))
    assert region.counts[Reason.REPLAYED] == 2


@torch.no_grad()
def test_every_part_of_the_key_makes_another_recording() -> None:
    backend = TapeBackend()
    region = orthogonalization_region(backend)
    region.capacity, region.record_after = 20, 0
    run = replayed(region)
    square, wide = torch.randn(1, 4, 4), torch.randn(1, 4, 9)
    variants: list[Callable[[], Tensor]] = [
        lambda: run.batched(square, 5, "quintic", "direct"),
        lambda: run.scalar(square[0], 5, "quintic"),
        lambda: run.batched(wide, 5, "quintic", "direct"),
        lambda: run.batched(square.double(), 5, "quintic", "direct"),
        lambda: run.batched(square, 4, "quintic", "direct"),
        lambda: run.batched(square, 5, "classic", "direct"),
        lambda: run.batched(square, 5, "quintic", "staged"),
    ]
    for count, call in enumerate(variants, start=1):
        for _ in range(2):
            call()
        assert region.counts[Reason.RECORDED] == count
    torch.set_float32_matmul_precision("high")
    try:
        variants[0]()
    finally:
        torch.set_float32_matmul_precision("highest")
    assert region.counts[Reason.RECORDED] == len(variants) + 1
    with backend.on_stream(1):
        variants[0]()
    assert region.counts[Reason.RECORDED] == len(variants) + 2
    assert region.retired_by is None


@torch.no_grad()
def test_a_full_cache_runs_new_signatures_natively() -> None:
    region = orthogonalization_region(TapeBackend())
    region.record_after = 0
    run = replayed(region)
    for side in (3, 4, 5, 3):
        run.batched(torch.randn(1, side, side), 5, "quintic", "direct")
    assert region.counts[Reason.RECORDED] == 1
    assert region.counts[Reason.SIGNATURE] == 2
    assert region.counts[Reason.REPLAYED] == 1


def strided(x: Tensor) -> Tensor:
    return x.mT.contiguous().mT


def offset(x: Tensor) -> Tensor:
    return torch.stack([x, x])[1]


@pytest.mark.parametrize("view", [strided, offset])
@torch.no_grad()
def test_views_of_larger_memory_run_natively(view: Callable[[Tensor], Tensor]) -> None:
    region = orthogonalization_region(TapeBackend())
    region.record_after = 0
    x = view(torch.randn(2, 3, 5))
    assert same_bytes(
        replayed(region).batched(x, 5, "quintic", "direct"),
        updates_module.orthogonalize_batch(x, 5, "quintic", "direct"),
    )
    assert region.counts[Reason.DECLINED] == 1


def test_under_autograd_and_autocast_the_functions_run_natively_and_differentiably() -> None:
    region = orthogonalization_region(TapeBackend())
    region.record_after = 0
    x = torch.randn(1, 3, 5, requires_grad=True)
    replayed(region).batched(x, 5, "quintic", "direct").sum().backward()
    assert x.grad is not None
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        replayed(region).batched(x.detach(), 5, "quintic", "direct")
    assert region.counts[Reason.RECORDED] == 0
    assert region.counts[Reason.DECLINED] + region.counts[Reason.GRAD_MODE] == 2


@torch.no_grad()
def test_inside_another_recording_the_functions_run_natively() -> None:
    backend = TapeBackend()
    region = orthogonalization_region(backend)
    region.record_after = 0
    run = replayed(region)
    backend.record(lambda x: [run.batched(x[0], 2, "quintic", "direct")], [torch.randn(1, 2, 2)], (), False)
    assert region.counts[Reason.IN_CAPTURE] > 0
    assert region.counts[Reason.RECORDED] == 0
