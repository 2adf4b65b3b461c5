"""Shape checks and the two promotion rules shared by every module of the package."""

import torch
from torch import Tensor


def real(tensor: Tensor, name: str) -> Tensor:
    """Return ``tensor`` as geometry reads it: float32 and float64 unchanged, other dtypes as float32.

    Half precision cannot hold the area of a 300 px box and integers cannot hold half a pixel, so both are
    promoted. Raises TypeError for something that is not a tensor or is complex.
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
    if tensor.dtype == torch.float32 or tensor.dtype == torch.float64:
        return tensor
    if tensor.is_complex():
        raise TypeError(f"{name} must be real, got {tensor.dtype}")
    return tensor.float()


def working(tensor: Tensor, columns: int, name: str) -> Tensor:
    """Return `real` of ``tensor``; ValueError unless its last dimension is ``columns``."""
    values = real(tensor, name)
    if tensor.dim() < 1 or tensor.shape[-1] != columns:
        raise ValueError(f"{name} must have shape (..., {columns}), got {tuple(tensor.shape)}")
    return values


def widest_dtype(device: torch.device) -> torch.dtype:
    """Return the dtype in which geometry is decided: float64, or float32 where the device has none."""
    return _WITHOUT_FLOAT64.get(device.type, torch.float64)


def widest(tensor: Tensor) -> Tensor:
    """Return ``tensor`` in the dtype of `widest_dtype`."""
    return tensor.to(widest_dtype(tensor.device))


def require_rows(tensor: Tensor, name: str) -> None:
    """Raise ValueError unless ``tensor`` has at least two dimensions (a set of rows)."""
    if tensor.dim() < 2:
        raise ValueError(
            f"{name} must have shape (..., rows, columns), got {tuple(tensor.shape)}; "
            "add a leading dimension with unsqueeze(0)"
        )


_WITHOUT_FLOAT64 = {"mps": torch.float32}
