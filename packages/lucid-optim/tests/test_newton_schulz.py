import pytest
import torch
from torch import Tensor

from lucid_optim import newton_schulz, newton_schulz_batch

SHAPES = [(32, 32), (24, 64), (64, 24)]


def known(rows: int, columns: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    """A matrix with singular values from 0.5 to 2 and its factors."""
    generator = torch.Generator().manual_seed(rows * 100 + columns)
    small = min(rows, columns)
    u, _ = torch.linalg.qr(torch.randn(rows, small, generator=generator, dtype=torch.float64))
    v, _ = torch.linalg.qr(torch.randn(columns, small, generator=generator, dtype=torch.float64))
    s = torch.linspace(0.5, 2.0, small, dtype=torch.float64)
    return ((u * s) @ v.T).to(dtype), u, v


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_singular_values_land_near_one(shape: tuple[int, int], dtype: torch.dtype) -> None:
    matrix, _, _ = known(*shape, dtype)
    values = torch.linalg.svdvals(newton_schulz(matrix).double())
    assert values.min() > 0.6
    assert values.max() < 1.2


@pytest.mark.parametrize("form", ["one", "batch"])
def test_singular_vectors_are_kept(form: str) -> None:
    matrix, u, v = known(48, 32)
    result = newton_schulz(matrix) if form == "one" else newton_schulz_batch(matrix[None])[0]
    core = u.T @ result.double() @ v
    assert (core - torch.diag(core.diagonal())).norm() < 1e-3


@pytest.mark.parametrize("shape", SHAPES)
def test_a_random_matrix_never_grows_past_one_and_a_half(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    values = torch.linalg.svdvals(newton_schulz(torch.randn(shape)))
    assert torch.isfinite(values).all()
    assert values.max() < 1.5


def test_the_zero_matrix_stays_exactly_zero() -> None:
    assert torch.equal(newton_schulz(torch.zeros(3, 5)), torch.zeros(3, 5))
    assert torch.equal(newton_schulz_batch(torch.zeros(2, 5, 3)), torch.zeros(2, 5, 3))


def test_the_input_is_not_written() -> None:
    matrix = torch.randn(6, 4)
    before = matrix.clone()
    newton_schulz(matrix)
    newton_schulz_batch(matrix[None])
    assert torch.equal(matrix, before)


def test_one_step_applies_the_quintic_to_every_singular_value() -> None:
    matrix, _, _ = known(8, 12, torch.float64)
    x = torch.linalg.svdvals(matrix)
    x = x / x.norm()
    expected = 3.4445 * x - 4.7750 * x**3 + 2.0315 * x**5
    actual = torch.linalg.svdvals(newton_schulz(matrix, steps=1))
    torch.testing.assert_close(actual, expected.sort(descending=True).values, rtol=0, atol=1e-6)


def test_a_huge_float64_matrix_is_not_demoted() -> None:
    result = newton_schulz(torch.eye(4, dtype=torch.float64) * 1e200)
    assert result.dtype == torch.float64
    assert torch.isfinite(result).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_a_batch_agrees_with_one_matrix_at_a_time(
    shape: tuple[int, int], dtype: torch.dtype, bound: float
) -> None:
    torch.manual_seed(1)
    # each slice has its own size, so a shared normalisation would show
    stack = (
        torch.randn(4, *shape, dtype=dtype) * torch.tensor([1e-3, 1.0, 1e3, 1.0], dtype=dtype)[:, None, None]
    )
    expected = torch.stack([newton_schulz(matrix) for matrix in stack])
    torch.testing.assert_close(newton_schulz_batch(stack), expected, rtol=0, atol=bound)


def test_what_is_not_a_matrix_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="2-D matrix"):
        newton_schulz(torch.zeros(2, 2, 2))
    with pytest.raises(ValueError, match="3-D stack"):
        newton_schulz_batch(torch.zeros(2, 2))


def test_no_steps_is_refused_and_a_fraction_of_a_step_is_a_type_error() -> None:
    with pytest.raises(ValueError, match="steps"):
        newton_schulz(torch.eye(2), steps=0)
    with pytest.raises(TypeError):
        newton_schulz(torch.eye(2), steps=2.5)  # type: ignore[arg-type]
