"""The one-to-one reduction: of the anchors a ground truth won, the best alone.

Source: Wang et al., "YOLOv10", arXiv:2405.14458, section 3.1.
"""

from torch import Tensor


def keep_best(won: Tensor) -> Tensor:
    """Return (B, N, k) bool with the first true entry of each row of ``won`` (B, N, k) and nothing else.

    Rows list a ground truth's anchors best first, ties by ascending anchor. A row without a true entry stays
    empty.

    >>> import torch
    >>> keep_best(torch.tensor([[[False, True, True], [False, False, False]]]))
    tensor([[[False,  True, False],
             [False, False, False]]])
    """
    return won & (won.cumsum(-1) == 1)
