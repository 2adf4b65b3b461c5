"""Orthogonalisation shared between two processes, against one that does it all."""

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from lucid_capture import TapeBackend, same_bytes
from lucid_optim import MuSGD, updates
from lucid_optim.sharding import assign
from lucid_optim.updates import Shaped

needs_gloo = pytest.mark.skipif(
    not dist.is_available() or not dist.is_gloo_available(), reason="torch was built without gloo"
)

SHAPES = ((8, 3, 3, 3), (8, 3, 3, 3), (6, 20), (20, 6), (5,), (4, 4), (4, 6), (3, 1, 1))


def trained(dtype: torch.dtype, shard: dist.ProcessGroup | None) -> tuple[list[Tensor], int]:
    """Weights and buffers after four steps of two groups, and how many matrices this process computed."""
    g = torch.Generator().manual_seed(0)
    ps = [nn.Parameter(torch.randn(s, generator=g).to(dtype)) for s in SHAPES]
    optimizer = MuSGD([{"params": ps[:5]}, {"params": ps[5:], "lr": 0.1}], lr=0.02, shard=shard)
    computed = []
    original = updates.newton_schulz_batch

    def counting(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        computed.append(len(x))
        return original(x, *args, **kwargs)

    updates.newton_schulz_batch = counting
    for step in range(4):
        for i, p in enumerate(ps):
            # the second step has one gradient less
            p.grad = None if (step, i) == (1, 2) else torch.randn(p.shape, generator=g).to(dtype)
        optimizer.step()
    updates.newton_schulz_batch = original
    return [*(p.detach() for p in ps), *(optimizer.state[p]["momentum_buffer"] for p in ps)], sum(computed)


def work(rank: int, ranks: int, folder: Path) -> None:
    """Train with and without sharding as one rank of several, and write both results down."""
    # the pool of threads did not come along into this process
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=ranks)
    dtypes = (torch.float32, torch.float64, torch.bfloat16)
    torch.save(
        {str(d): (trained(d, None), trained(d, dist.group.WORLD)) for d in dtypes}, folder / f"{rank}.pt"
    )
    dist.destroy_process_group()


@needs_gloo
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_two_ranks_share_the_work_and_reach_the_bytes_of_one(tmp_path: Path) -> None:
    # forked, because importing torch anew takes longer than the test; the first optimizer imports the rest
    MuSGD([nn.Parameter(torch.ones(1))], lr=0.1)
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=work, args=(rank, 2, tmp_path)) for rank in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=60)
    codes = [worker.exitcode for worker in workers]
    for worker in workers:
        worker.kill()
    assert codes == [0, 0]
    results = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]
    for dtype in results[0]:
        for (alone, _), (shared, _) in (result[dtype] for result in results):
            comparison = same_bytes(alone, shared)
            assert comparison, f"{dtype}: {comparison}"
        # seven matrices in four steps, one of them once without a gradient: each computed by one rank
        done = [result[dtype][1][1] for result in results]
        assert sum(done) == 7 * 4 - 1
        assert min(done) > 0


@needs_gloo
def test_a_group_of_one_rank_gives_the_bytes_of_no_group(tmp_path: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        results = []
        for shard in (None, dist.group.WORLD):
            p = nn.Parameter(torch.ones(3, 4))
            optimizer = MuSGD([p], lr=0.1, shard=shard)
            for step in range(3):
                p.grad = torch.full((3, 4), step + 1.0).tril()
                optimizer.step()
            results.append(p.detach())
        assert same_bytes(*results)
        with pytest.raises(ValueError, match="collectives"):
            MuSGD([p], lr=0.1, shard=dist.group.WORLD, capture_updates=True, backend=TapeBackend())
    finally:
        dist.destroy_process_group()


SIDES = st.tuples(st.integers(1, 4), st.integers(1, 64), st.integers(1, 64))


@given(st.lists(SIDES, max_size=20), st.integers(1, 5))
def test_every_stack_has_one_rank_and_no_rank_more_than_its_share_and_one_stack(
    shapes: list[tuple[int, int, int]], ranks: int
) -> None:
    stacks = [Shaped(shape, torch.float32, torch.device("cpu")) for shape in shapes]
    owner = assign(stacks, ranks)
    assert owner == assign(stacks, ranks)
    assert all(0 <= rank < ranks for rank in owner)

    def cost(shape: tuple[int, int, int]) -> int:
        count, small, large = shape[0], min(shape[1:]), max(shape[1:])
        return count * small * small * (2 * large + small)

    loads = [sum(cost(s) for s, r in zip(shapes, owner, strict=True) if r == rank) for rank in range(ranks)]
    # the bound of Graham's list scheduling
    assert max(loads) <= sum(loads) / ranks + max(map(cost, shapes), default=0)
