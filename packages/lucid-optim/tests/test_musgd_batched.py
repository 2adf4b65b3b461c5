import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lucid_optim import MuSGD
from lucid_optim.buckets import independent, same_shape_buckets

Shapes = list[tuple[int, ...]]


def trajectory(
    shapes: Shapes, batched: bool, dtype: torch.dtype, steps: int
) -> tuple[list[Tensor], list[Tensor]]:
    """Parameters and momentum buffers after steps with the same gradients whatever the form."""
    generator = torch.Generator().manual_seed(0)
    ps = [nn.Parameter(torch.randn(s, generator=generator, dtype=dtype)) for s in shapes]
    optimizer = MuSGD(ps, lr=0.01, batched=batched)
    for _ in range(steps):
        for p in ps:
            p.grad = torch.randn(p.shape, generator=generator, dtype=dtype)
        optimizer.step()
    return [p.data for p in ps], [optimizer.state[p]["momentum_buffer"] for p in ps]


ZOO: Shapes = [
    (8, 3, 3, 3),
    (8, 3, 3, 3),
    (8,),
    (16, 4),
    (4, 16),
    (4, 16),
    (6, 1, 3, 3),
    (6, 1, 3, 3),
    (16, 4),
    (5, 1, 1),
    (),
]


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 2e-6), (torch.float64, 1e-14)])
def test_ten_steps_stay_within_rounding_of_the_reference(dtype: torch.dtype, bound: float) -> None:
    ours, our_buffers = trajectory(ZOO, True, dtype, 10)
    reference, buffers = trajectory(ZOO, False, dtype, 10)
    for a, b in zip(ours, reference, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=bound)
    for a, b in zip(our_buffers, buffers, strict=True):
        assert torch.equal(a.view(torch.uint8) if a.dim() else a, b.view(torch.uint8) if b.dim() else b)


SIZES = st.lists(
    st.sampled_from([(1, 1), (2, 9), (9, 2), (7, 7), (3, 5, 2), (4, 2, 1, 3), (3,)]), min_size=1, max_size=9
)


@given(shapes=SIZES)
@settings(max_examples=25)
def test_any_mixture_of_shapes_stays_within_rounding_of_the_reference(shapes: Shapes) -> None:
    ours, _ = trajectory(shapes, True, torch.float32, 3)
    reference, _ = trajectory(shapes, False, torch.float32, 3)
    for a, b in zip(ours, reference, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=2e-6)


def test_matrices_of_one_shape_share_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    from lucid_optim import musgd

    counts = []
    original = musgd.newton_schulz_batch

    def counting(x: Tensor, steps: int) -> Tensor:
        counts.append(len(x))
        return original(x, steps)

    monkeypatch.setattr(musgd, "newton_schulz_batch", counting)
    trajectory([(4, 6)] * 3 + [(6, 4)] * 2 + [(5, 5)], True, torch.float32, 1)
    assert counts == [3, 2]


def test_buckets_tell_dtypes_apart() -> None:
    assert same_shape_buckets([torch.zeros(2, 2), torch.zeros(2, 2).double(), torch.zeros(2, 2)]) == [
        [0, 2],
        [1],
    ]


def test_overlapping_parameters_take_the_reference_route() -> None:
    results = []
    for batched in (True, False):
        flat = torch.arange(12.0)
        ps = [nn.Parameter(flat[:8].view(2, 4)), nn.Parameter(flat[4:].view(2, 4))]
        for p in ps:
            p.grad = torch.ones(2, 4)
        MuSGD(ps, lr=0.1, weight_decay=0.5, batched=batched).step()
        results.append(flat)
    assert torch.equal(*results)


def test_two_wrappers_of_one_allocation_overlap() -> None:
    tensor = torch.zeros(6)
    assert not independent([tensor, torch.from_dlpack(tensor)])


def test_interleaved_views_are_taken_as_overlapping_and_disjoint_ones_are_not() -> None:
    flat = torch.zeros(12)
    assert not independent([flat[::2], flat[1::2]])
    assert independent([flat[:6], flat[6:]])


def test_gradients_that_share_one_flat_buffer_are_still_batched() -> None:
    flat = torch.randn(24)
    ps = [nn.Parameter(torch.zeros(3, 4)) for _ in range(2)]
    twins = [nn.Parameter(torch.zeros(3, 4)) for _ in range(2)]
    for i, (p, q) in enumerate(zip(ps, twins, strict=True)):
        p.grad = flat[12 * i : 12 * i + 12].view(3, 4)
        q.grad = p.grad.clone()
    for group in (ps, twins):
        MuSGD(group, lr=0.1).step()
    for p, q in zip(ps, twins, strict=True):
        assert torch.equal(p.data, q.data)


class Opaque(torch.Tensor):
    """A subclass that refuses to say where its memory is."""

    def data_ptr(self) -> int:
        raise RuntimeError("opaque")


def test_an_opaque_subclass_takes_the_reference_route_and_never_raises() -> None:
    torch.manual_seed(0)
    values, grads = torch.randn(2, 4, 4), torch.randn(2, 4, 4)
    plain = [nn.Parameter(v.clone()) for v in values]
    mixed = [plain[0].__class__(values[0].clone()), nn.Parameter(values[1].clone().as_subclass(Opaque))]
    for ps, batched in ((plain, False), (mixed, True)):
        for p, g in zip(ps, grads, strict=True):
            p.grad = g.clone()
        MuSGD(ps, lr=0.1, batched=batched).step()
    for a, b in zip(plain, mixed, strict=True):
        assert torch.equal(a.data, b.data.as_subclass(torch.Tensor))


def test_a_subclass_that_rewrites_the_updates_is_obeyed() -> None:
    class Halved(MuSGD):
        def _updates(self, group):  # type: ignore[no-untyped-def]
            for parameters, updates in super()._updates(group):
                yield parameters, [u / 2 for u in updates]

    ps = [nn.Parameter(torch.zeros(2)) for _ in range(2)]
    for p, kind in zip(ps, (MuSGD, Halved), strict=True):
        p.grad = torch.ones(2)
        kind([p], lr=1.0).step()
    torch.testing.assert_close(ps[1].data, ps[0].data / 2)
