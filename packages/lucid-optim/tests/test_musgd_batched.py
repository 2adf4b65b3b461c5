import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lucid_capture import same_bytes
from lucid_optim import MuSGD, newton_schulz, newton_schulz_batch
from lucid_optim.buckets import PADDING, MatrixKind, PaddingLimit, _stacks, independent, stacks
from lucid_optim.newton_schulz import Route
from lucid_optim.updates import batched_updates, look_ahead_in_lists, look_ahead_one_by_one

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


# what fifty steps at learning rate 0.01 may differ by, for weights and gradients of unit scale
BOUND = {torch.float32: 1e-5, torch.float64: 1e-13}


@pytest.mark.parametrize("dtype", list(BOUND))
def test_fifty_steps_stay_within_rounding_of_the_reference(dtype: torch.dtype) -> None:
    ours, our_buffers = trajectory(ZOO, True, dtype, 50)
    reference, buffers = trajectory(ZOO, False, dtype, 50)
    for a, b in zip(ours, reference, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=BOUND[dtype])
    assert same_bytes(our_buffers, buffers)


SIDE = st.integers(1, 20)
SHAPES = st.lists(
    st.one_of(
        st.tuples(SIDE, SIDE),
        st.integers(1, 6).flatmap(lambda s: st.sampled_from([(s, 40), (40, s), (s, 36), (s, 5, 2, 2)])),
        st.tuples(st.integers(1, 24), st.just(1), st.just(3), st.just(3)),
        st.tuples(st.integers(1, 24), st.just(1), st.just(1)),
        st.tuples(SIDE),
    ),
    min_size=1,
    max_size=9,
)


@given(shapes=SHAPES, dtype=st.sampled_from(list(BOUND)))
@settings(max_examples=12)
def test_any_mixture_of_shapes_stays_within_rounding_of_the_reference(
    shapes: Shapes, dtype: torch.dtype
) -> None:
    ours, our_buffers = trajectory(shapes, True, dtype, 50)
    reference, buffers = trajectory(shapes, False, dtype, 50)
    for a, b in zip(ours, reference, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=BOUND[dtype])
    assert same_bytes(our_buffers, buffers)


@given(shapes=SHAPES)
@settings(max_examples=6)
def test_bfloat16_parameters_differ_by_a_rounding_now_and_then(shapes: Shapes) -> None:
    ours, our_buffers = trajectory(shapes, True, torch.bfloat16, 50)
    reference, buffers = trajectory(shapes, False, torch.bfloat16, 50)
    for a, b in zip(ours, reference, strict=True):
        # a tie of a rounding to 8 bits that falls the other way moves the weight by 2^-8 of itself
        torch.testing.assert_close(a, b, rtol=2**-6, atol=2**-6)
    assert same_bytes(our_buffers, buffers)
    assert all(buffer.dtype == torch.float32 for buffer in our_buffers)


@pytest.mark.parametrize("route", ["direct", "staged"])
@pytest.mark.parametrize("shape", [(256, 300), (300, 256), (384, 256)])
def test_large_matrices_made_in_triangles_of_blocks_agree_with_the_reference(
    shape: tuple[int, int], route: str
) -> None:
    x = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    expected = torch.stack([newton_schulz(matrix) for matrix in x])
    torch.testing.assert_close(newton_schulz_batch(x, route=route), expected, rtol=0, atol=5e-6)


def kind(
    *shape: int,
    device: str = "cpu",
    parameter: torch.dtype = torch.float32,
    dtype: torch.dtype = torch.float32,
) -> MatrixKind:
    return MatrixKind(shape, parameter, dtype, torch.device(device))


def test_matrices_of_one_shape_share_one_stack_in_the_order_of_their_first_member() -> None:
    plan = stacks([kind(64, 96), kind(96, 64), kind(64, 96), kind(80, 80)])
    assert [stack.members for stack in plan] == [(0, 2), (1,), (3,)]
    assert all(stack.padded is None for stack in plan)


def test_dtypes_and_devices_never_share_a_stack() -> None:
    kinds = [
        kind(8, 9),
        kind(8, 9, dtype=torch.float64),
        kind(8, 9, parameter=torch.bfloat16),
        kind(8, 9, device="cuda:0"),
    ]
    assert [stack.members for stack in stacks(kinds)] == [(0,), (1,), (2,), (3,)]


def test_one_smaller_side_is_padded_to_the_widest_tall_ones_included() -> None:
    (stack,) = stacks([kind(8, 40), kind(36, 8), kind(8, 40), kind(8, 4, 3, 3)])
    assert stack.members == (0, 1, 2, 3)
    assert stack.padded == (8, 40)


def test_a_same_shape_group_joins_the_padded_stack_of_its_side() -> None:
    (stack,) = stacks(
        [kind(64, 288, device="cuda"), kind(64, 288, device="cuda"), kind(64, 300, device="cuda")]
    )
    assert stack.padded == (64, 300)


def test_sides_past_the_limit_and_devices_without_one_are_not_padded() -> None:
    assert len(stacks([kind(257, 300, device="cuda"), kind(257, 310, device="cuda")])) == 2
    assert len(stacks([kind(256, 300, device="cuda"), kind(256, 310, device="cuda")])) == 1
    assert len(stacks([kind(8, 36, device="mps"), kind(8, 40, device="mps")])) == 2


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 200)), min_size=1, max_size=30),
    st.sampled_from(["cpu", "cuda"]),
    st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_every_matrix_is_in_one_stack_and_no_stack_exceeds_its_budget(
    shapes: list[tuple[int, int]], device: str, parameter: torch.dtype
) -> None:
    kinds = [kind(*shape, device=device, parameter=parameter) for shape in shapes]
    plan = stacks(kinds)
    assert sorted(i for stack in plan for i in stack.members) == list(range(len(shapes)))
    for stack in plan:
        if stack.padded is None:
            assert len({kinds[i].shape for i in stack.members}) == 1
            continue
        small, width = stack.padded
        held = sum(kinds[i].shape[0] * kinds[i].shape[1] for i in stack.members)
        assert {kinds[i].sides[0] for i in stack.members} == {small}
        assert width == max(kinds[i].sides[1] for i in stack.members)
        assert small * width * len(stack.members) <= PADDING[device].stretch * held
        # float32 zeros and values beside a parameter and its gradient
        assert small * width * len(stack.members) * 4 <= 2 * held * parameter.itemsize


def test_padded_columns_stay_zero_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def recording(x: Tensor, steps: int, preset: str, route: Route) -> Tensor:
        seen.append(newton_schulz_batch(x, steps, preset=preset, route=route))
        return seen[-1].clone()

    g = torch.Generator().manual_seed(0)
    ps = [nn.Parameter(torch.zeros(s)) for s in ((4, 40), (36, 4))]
    grads = [torch.randn(p.shape, generator=g) for p in ps]
    group = {
        "momentum": 0.0, "weight_decay": 0.0, "w_muon": 1.0, "w_sgd": 0.0, "ns_steps": 5, "ns_preset": "quintic"
    }  # fmt: skip
    ((_, updates),) = batched_updates(group, ps, grads, [torch.zeros_like(p) for p in ps], run=recording)
    assert torch.equal(seen[0][1, :, 36:], torch.zeros(4, 4))
    for update, grad in zip(updates, grads, strict=True):
        expected = 0.2 * max(grad.shape) ** 0.5 * newton_schulz(grad)
        torch.testing.assert_close(update, expected, rtol=0, atol=2e-6)


def test_wide_limits_pad_with_the_same_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PADDING, "cpu", PaddingLimit(256, 2.0))
    _stacks.cache_clear()
    shapes = [(24, 60), (50, 24), (24, 4, 3, 3), (24, 60), (24, 31), (7,)]
    ours, _ = trajectory(shapes, True, torch.float32, 10)
    _stacks.cache_clear()
    reference, _ = trajectory(shapes, False, torch.float32, 10)
    for a, b in zip(ours, reference, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=5e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("momentum", [0.95, 0.0, -0.0])
def test_momentum_in_lists_has_the_bytes_of_one_by_one(dtype: torch.dtype, momentum: float) -> None:
    g = torch.Generator().manual_seed(0)
    special = torch.tensor([0.0, -0.0, 1e-40, -1e-40, float("inf"), 1e38], dtype=dtype)
    results = []
    for form in (look_ahead_one_by_one, look_ahead_in_lists):
        g.manual_seed(0)
        buffers = [torch.randn(s, generator=g, dtype=dtype) for s in ((5, 7), (3, 2, 3, 3), ())] + [
            special.clone()
        ]
        for _ in range(3):
            grads = [torch.randn(b.shape, generator=g, dtype=dtype) for b in buffers[:-1]] + [
                -special.flip(0)
            ]
            ahead = form(grads, buffers, momentum)
        results.append([buffers, ahead])
    assert same_bytes(*results)


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


def test_tensors_without_an_address_count_as_dependent_and_do_not_raise() -> None:
    answers = []

    def look(x: Tensor) -> Tensor:
        answers.append(independent([x]))
        return x

    torch.func.vmap(look)(torch.zeros(2, 3))
    assert answers == [False]
    assert not independent([torch.zeros(2, 3).to_sparse()])


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
