import pytest
import torch
from torch import Tensor

from lucid_optim import symmetric
from lucid_optim.symmetric import Blocks, Rows, Symmetric


def rows(blocks: int) -> tuple[Tensor, Rows]:
    """A stack of two 7 x 10 matrices, whole and as the operations take it: blocks of unequal height."""
    y = torch.randn(2, 7, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return y, list(y.tensor_split(blocks, dim=1)) if blocks > 1 else y


def whole(x: Symmetric | Rows) -> Tensor:
    """The full matrices of a result."""
    if isinstance(x, Blocks):
        size = range(len(x.lower))
        return torch.cat([torch.cat([x.at(i, j) for j in size], dim=2) for i in size], dim=1)
    return x if isinstance(x, Tensor) else torch.cat(x, dim=1)


@pytest.mark.parametrize("blocks", [1, 2, 3, 7])
def test_every_operation_agrees_with_whole_matrices(blocks: int) -> None:
    y, split = rows(blocks)
    gram = symmetric.gram(split)
    square = y @ y.mT
    torch.testing.assert_close(whole(gram), square)
    factor = symmetric.quadratic(gram, 0.5, -0.25)
    expected = 0.5 * square - 0.25 * square @ square
    torch.testing.assert_close(whole(factor), expected)
    torch.testing.assert_close(whole(symmetric.product(factor, gram)), expected @ square)
    torch.testing.assert_close(whole(symmetric.multiply(factor, split)), expected @ y)
    torch.testing.assert_close(whole(symmetric.multiply(factor, split, own=3.0)), 3 * y + expected @ y)
    symmetric.add_identity_(factor, 2.0)
    torch.testing.assert_close(whole(factor), expected + 2 * torch.eye(7, dtype=torch.float64))


def test_only_the_triangle_is_made() -> None:
    _, split = rows(3)
    gram = symmetric.gram(split)
    assert isinstance(gram, Blocks)
    assert [len(row) for row in gram.lower] == [1, 2, 3]
    assert gram.at(0, 2).data_ptr() == gram.at(2, 0).data_ptr()


def test_operands_are_left_as_they_were() -> None:
    for blocks in (1, 2):
        y, split = rows(blocks)
        before = y.clone()
        gram = symmetric.gram(split)
        kept = whole(gram).clone()
        symmetric.multiply(symmetric.quadratic(gram, 1.0, 1.0), split, own=1.0)
        symmetric.product(gram, gram)
        assert torch.equal(whole(gram), kept)
        assert torch.equal(y, before)
