"""COCO's compressed run-length encoding of masks.

Source: the format of the COCO annotations (cocodataset.org): runs down the columns, starting with background;
from the fourth on as the difference to the run two before; five bits per character, least significant first.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

# mask pixels encoded at once
_PIXELS = 1 << 26


def encode_masks(masks: Tensor) -> list[str]:
    """Return the compressed counts of masks (N, H, W) bool, one string each.

    Raises ValueError for another shape and TypeError for another dtype.

    >>> encode_masks(torch.tensor([[[False, True], [False, True]]]))
    ['22']
    """
    if masks.dim() != 3:
        raise ValueError(f"masks must be (N, H, W), got {tuple(masks.shape)}")
    if masks.dtype != torch.bool:
        raise TypeError(f"masks must be bool, got {masks.dtype}")
    step = max(1, _PIXELS // max(1, masks.shape[1] * masks.shape[2]))
    strings: list[str] = []
    for start in range(0, len(masks), step):
        strings += _encode(masks[start : start + step])
    return strings


def _encode(masks: Tensor) -> list[str]:
    flat = masks.transpose(1, 2).flatten(1)
    # a run ends where the value changes, and at the end
    ends = pad(flat, (0, 1)) != pad(flat, (1, 0))
    ends[:, -1] = True
    mask, end = ends.nonzero(as_tuple=True)
    first = pad(mask[1:] != mask[:-1], (1, 0), value=True)
    runs = end - torch.where(first, 0, end.roll(1))
    place = torch.arange(len(mask), device=mask.device)
    place = place - place[first][mask]
    values = torch.where(place > 2, runs - runs.roll(2), runs)
    characters, used = [], []
    alive = torch.ones_like(first)
    while alive.any():
        low, values = values & 0x1F, values >> 5
        more = torch.where((low & 0x10) > 0, values != -1, values != 0) & alive
        characters.append(low + 48 + 32 * more)
        used.append(alive)
        alive = more
    written = torch.stack(used, 1)
    text = bytes(torch.stack(characters, 1)[written].tolist()).decode("ascii")
    lengths = torch.zeros(len(masks), dtype=torch.int64, device=mask.device)
    strings, at = [], 0
    for length in lengths.scatter_add(0, mask, written.sum(1)).tolist():
        strings.append(text[at : at + length])
        at += length
    return strings
