"""Accuracy of every form and route on spectra made to be difficult, and what the presets promise."""

import math

import pytest
import torch
from torch import Tensor

from lucid_optim import PRESETS, newton_schulz, newton_schulz_batch

# spectral-norm error each form may have on any spectrum below; those of the docstring
BOUNDS = {
    ("quintic", torch.float32): {"scalar": 5e-5, "direct": 5e-5, "staged": 5e-5, "gram": 2e-2},
    ("quintic", torch.float64): {"scalar": 1e-11, "direct": 1e-11, "staged": 1e-11, "gram": 1e-10},
    ("polar_express", torch.float32): {"scalar": 2e-3, "direct": 2e-3, "staged": 2e-3, "gram": 2e-1},
    ("polar_express", torch.float64): {"scalar": 1e-11, "direct": 1e-11, "staged": 1e-11, "gram": 1e-9},
    ("classic", torch.float32): {"scalar": 5e-6, "direct": 5e-6, "staged": 5e-6, "gram": 5e-5},
    ("classic", torch.float64): {"scalar": 1e-12, "direct": 1e-12, "staged": 1e-12, "gram": 1e-12},
}


def spectra(n: int) -> dict[str, Tensor]:
    """Singular values of n rows: equal, spread, tiny beside one large, repeated, half of them zero."""
    one, half = torch.zeros(n), torch.arange(n) < n // 2
    one[0] = 1
    values = {
        "equal": torch.ones(n),
        "from 0.5 to 2": torch.linspace(0.5, 2, n),
        "down to 1e-8": torch.logspace(0, -8, n),
        "down to 1e-4": torch.logspace(0, -4, n),
        "one and zeros": one,
        "one and 1e-4": one + 1e-4,
        "one and 1e-3": one + 1e-3,
        "one and 1e-2": one + 1e-2,
        "half zero": half.float(),
        "half 1e-3": half + 1e-3,
        "repeated tenths": (torch.arange(n) % 7) / 10,
    }
    return {name: v.double() for name, v in values.items()}


def errors(shape: tuple[int, int], scale: float, preset: str, dtype: torch.dtype) -> dict[str, float]:
    """The largest spectral-norm error of each form over the spectra, against the polynomial of the svd."""
    small = min(shape)
    generator = torch.Generator().manual_seed(small)
    u, v = (
        torch.linalg.qr(torch.randn(side, small, generator=generator, dtype=torch.float64))[0]
        for side in shape
    )
    x = torch.stack([(u * s * scale) @ v.T for s in spectra(small).values()]).to(dtype)
    left, values, right = torch.linalg.svd(x.double(), full_matrices=False)
    values = values / (torch.linalg.vector_norm(values, dim=1, keepdim=True) + 1e-7)
    for a, b, c in PRESETS[preset].steps(5):
        values = a * values + b * values**3 + c * values**5
    exact = (left * values[:, None]) @ right
    found = {"scalar": torch.stack([newton_schulz(matrix, preset=preset) for matrix in x])}
    for route in ("direct", "staged", "gram"):
        found[route] = newton_schulz_batch(x, preset=preset, route=route)
    return {form: torch.linalg.matrix_norm(y.double() - exact, 2).max().item() for form, y in found.items()}


@pytest.mark.parametrize(("preset", "dtype"), list(BOUNDS))
@pytest.mark.parametrize("shape", [(16, 144), (64, 64), (96, 40)])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
def test_every_form_keeps_its_bound_on_difficult_spectra(
    preset: str, dtype: torch.dtype, shape: tuple[int, int], scale: float
) -> None:
    for form, error in errors(shape, scale, preset, dtype).items():
        assert error <= BOUNDS[preset, dtype][form], form


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_form_keeps_its_bound_where_products_are_made_in_blocks(dtype: torch.dtype) -> None:
    for form, error in errors((256, 384), 1.0, "quintic", dtype).items():
        assert error <= BOUNDS["quintic", dtype][form], form


def test_the_default_route_is_as_accurate_as_the_direct_one_and_one_gram_matrix_is_not() -> None:
    found = errors((64, 576), 1.0, "quintic", torch.float32)
    assert found["staged"] <= 3 * found["scalar"]
    assert found["gram"] > 10 * found["scalar"]


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("route", ["staged", "gram"])
def test_any_number_of_steps_is_shared_out_over_gram_matrices(steps: int, route: str) -> None:
    x = torch.randn(2, 5, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = torch.stack([newton_schulz(matrix, steps) for matrix in x])
    torch.testing.assert_close(newton_schulz_batch(x, steps, route=route), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("preset", list(PRESETS))
def test_five_steps_of_a_preset_end_in_its_range(preset: str) -> None:
    x = torch.linspace(0.05, 1, 10_001, dtype=torch.float64)
    for a, b, c in PRESETS[preset].steps(5):
        x = a * x + b * x**3 + c * x**5
    low, high = PRESETS[preset].range
    assert low - 0.005 <= x.min()
    assert x.max() <= high + 0.005


def test_the_polar_express_rows_are_minimax_on_the_interval_the_last_row_left() -> None:
    low, high = 1e-3, 1.0
    for a, b, c in PRESETS["polar_express"].rows[:-1]:
        a, b, c = a * 1.01, b * 1.01**3, c * 1.01**5

        def p(x: float, a: float = a, b: float = b, c: float = c) -> float:
            return a * x + b * x**3 + c * x**5

        # the derivative a + 3 b x^2 + 5 c x^4 vanishes at the largest and the smallest value between the ends
        root = math.sqrt(9 * b * b - 20 * a * c)
        top, bottom = (math.sqrt((-3 * b + sign * root) / (10 * c)) for sign in (-1, 1))
        # equal oscillation about 1 at both ends; in between too, unless the minimum is held at a tenth
        assert p(low) + p(high) == pytest.approx(2, abs=1e-9)
        assert p(top) == pytest.approx(p(high), abs=1e-9)
        assert p(bottom) == pytest.approx(max(p(low), 0.1 * p(high)), abs=1e-9)
        low, high = p(low), p(high)


def test_rows_past_the_table_repeat_the_last() -> None:
    assert PRESETS["polar_express"].steps(10)[-2:] == [(1.875, -1.25, 0.375)] * 2


def test_presets_and_routes_that_do_not_exist_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"polar_express.*'cubic'"):
        newton_schulz(torch.eye(2), preset="cubic")
    with pytest.raises(ValueError, match="'cubic'"):
        newton_schulz_batch(torch.eye(2)[None], preset="cubic")
    with pytest.raises(ValueError, match=r"route.*'fast'"):
        newton_schulz_batch(torch.eye(2)[None], route="fast")  # type: ignore[arg-type]


def test_integers_are_refused() -> None:
    with pytest.raises(TypeError, match="int64"):
        newton_schulz(torch.ones(2, 2, dtype=torch.int64))
    with pytest.raises(TypeError, match="complex64"):
        newton_schulz_batch(torch.ones(1, 2, 2, dtype=torch.complex64))


def test_autocast_does_not_lower_the_precision_of_the_iteration() -> None:
    x = torch.randn(12, 20, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        one, batch = newton_schulz(x), newton_schulz_batch(x[None])
    assert torch.equal(one, newton_schulz(x))
    assert torch.equal(batch, newton_schulz_batch(x[None]))
    assert one.dtype == torch.float32


@pytest.mark.parametrize("route", ["direct", "staged", "gram"])
@pytest.mark.parametrize("shape", [(1, 3, 9), (2, 9, 3), (1, 256, 256)])
def test_no_route_writes_its_input_or_returns_its_memory(shape: tuple[int, ...], route: str) -> None:
    x = torch.randn(shape)
    before = x.clone()
    result = newton_schulz_batch(x, 1, route=route)
    result.zero_()
    assert torch.equal(x, before)


@pytest.mark.parametrize("route", ["direct", "staged", "gram"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_iterated_in_float32(dtype: torch.dtype, route: str) -> None:
    x = torch.randn(1, 6, 14, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert torch.equal(
        newton_schulz_batch(x, route=route), newton_schulz_batch(x.float(), route=route).to(dtype)
    )
