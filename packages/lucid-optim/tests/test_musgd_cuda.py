"""What the host cannot show: stacks, foreach momentum and replay on a CUDA device."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lucid_capture
from lucid_capture import Reason, same_bytes
from lucid_optim import ModelEMA, MuSGD, newton_schulz, newton_schulz_batch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

SHAPES = (
    (16, 3, 3, 3),
    (16, 16, 3, 3),
    (16, 16, 3, 3),
    (64, 32),
    (32, 70),
    (64,),
    (24, 1, 3, 3),
    (8, 1, 1),
    (),
)


def backend() -> Any:
    """The device back-end of lucid-capture, where this release has one."""
    make = getattr(lucid_capture, "CudaBackend", None)
    if make is None:
        pytest.skip("this lucid-capture records on the tape alone")
    return make()


def trajectory(
    steps: int, channels_last: bool = False, dtype: torch.dtype = torch.float32, **options: Any
) -> list[Any]:
    g = torch.Generator().manual_seed(0)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    ps = []
    for shape in SHAPES:
        value = torch.randn(shape, generator=g, dtype=dtype).cuda()
        ps.append(nn.Parameter(value.to(memory_format=layout) if value.dim() == 4 else value))
    optimizer = MuSGD(ps, lr=0.01, **options)
    for _ in range(steps):
        for p in ps:
            p.grad = torch.empty_like(p).copy_(torch.randn(p.shape, generator=g, dtype=dtype))
        optimizer.step()
        optimizer.param_groups[0]["lr"] *= 0.99
    return [[p.detach() for p in ps], [optimizer.state[p]["momentum_buffer"] for p in ps], optimizer.regions]


@pytest.fixture
def _full_precision() -> Any:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.usefixtures("_full_precision")
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 2e-5), (torch.float64, 1e-13)])
def test_fifty_stacked_steps_stay_within_rounding_of_the_reference(
    dtype: torch.dtype, bound: float, channels_last: bool
) -> None:
    ours, buffers, _ = trajectory(50, channels_last, dtype)
    reference, expected, _ = trajectory(50, channels_last, dtype, batched=False)
    assert same_bytes(buffers, expected)
    for a, b in zip(ours, reference, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=bound)


@pytest.mark.usefixtures("_full_precision")
@pytest.mark.parametrize("route", ["direct", "staged"])
def test_routes_agree_with_the_reference(route: Any) -> None:
    x = torch.randn(3, 24, 100, generator=torch.Generator().manual_seed(0)).cuda()
    expected = torch.stack([newton_schulz(matrix) for matrix in x])
    torch.testing.assert_close(newton_schulz_batch(x, route=route), expected, rtol=0, atol=5e-5)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(
    "flags",
    [
        {"capture_orthogonalization": True},
        {"capture_updates": True},
        {"capture_orthogonalization": True, "capture_updates": True},
    ],
)
def test_replayed_steps_have_the_bytes_of_native_ones(flags: dict[str, bool], channels_last: bool) -> None:
    native, native_buffers, _ = trajectory(12, channels_last)
    ours, buffers, regions = trajectory(12, channels_last, backend=backend(), **flags)
    comparison = same_bytes([native, native_buffers], [ours, buffers])
    assert comparison, str(comparison)
    assert sum(region.counts[Reason.REPLAYED] for region in regions) > 0


def test_a_captured_optimizer_on_the_host_runs_natively() -> None:
    p = nn.Parameter(torch.ones(3, 4))
    optimizer = MuSGD([p], lr=0.1, capture_updates=True, backend=backend())
    for _ in range(3):
        p.grad = torch.ones(3, 4)
        optimizer.step()
    assert optimizer.regions[0].counts[Reason.RECORDED] == 0


def test_the_average_follows_the_scalar_recursion() -> None:
    module = nn.Linear(8, 8).cuda()
    ema = ModelEMA(module, decay=0.9, tau=3)
    expected: dict[str, Tensor] = {n: t.detach().double().clone() for n, t in module.named_parameters()}
    for n in range(1, 6):
        with torch.no_grad():
            for p in module.parameters():
                p.add_(1)
        ema.update(module)
        d = 0.9 * (1 - torch.exp(torch.tensor(-n / 3, dtype=torch.float64)).item())
        for name, p in module.named_parameters():
            expected[name] = d * expected[name] + (1 - d) * p.detach().double()
    for name, value in expected.items():
        torch.testing.assert_close(ema.shadow[name].double(), value, rtol=1e-6, atol=1e-6)
