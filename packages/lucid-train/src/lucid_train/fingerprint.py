"""SHA-256 digests of nested tensors: the evidence that two runs learned the same bytes."""

import hashlib
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


def fingerprint(tree: object) -> str:
    """Return the SHA-256 hex digest of a nested structure of tensors and plain values.

    Tensors enter by dtype, shape and logical bytes (signed zeros and NaN payloads count, memory layout does not),
    floats by their bits, mappings in sorted key order.

    Raises:
        TypeError: a value that is none of tensor, mapping, sequence, number, string, bool or None.

    Example:
        >>> fingerprint({"a": torch.zeros(1)}) == fingerprint({"a": -torch.zeros(1)})
        False
    """
    digest = hashlib.sha256()
    _feed(digest, tree, "")
    return digest.hexdigest()


def digests_of(parts: Mapping[str, object]) -> dict[str, str]:
    """Return one digest per part and, as ``all``, one of them together."""
    digests = {name: fingerprint(part) for name, part in parts.items()}
    return digests | {"all": fingerprint(digests)}


def _feed(digest: Any, value: object, where: str) -> None:
    if isinstance(value, Tensor):
        plain = value.detach().cpu().contiguous()
        digest.update(f"tensor {plain.dtype} {tuple(plain.shape)} ".encode())
        digest.update(plain.reshape(-1).view(torch.uint8).numpy().tobytes())
    elif isinstance(value, Mapping):
        digest.update(f"mapping {len(value)} ".encode())
        for key in sorted(value, key=str):
            digest.update(f"{type(key).__name__} {key} ".encode())
            _feed(digest, value[key], f"{where}.{key}")
    elif isinstance(value, str):
        digest.update(f"str {len(value)} {value} ".encode())
    elif isinstance(value, Sequence):
        digest.update(f"sequence {len(value)} ".encode())
        for position, item in enumerate(value):
            _feed(digest, item, f"{where}[{position}]")
    elif isinstance(value, float):
        digest.update(b"float " + struct.pack("<d", value))
    elif value is None or isinstance(value, bool | int):
        digest.update(f"{type(value).__name__} {value} ".encode())
    else:
        raise TypeError(
            f"fingerprint: {where or 'the value'} is a {type(value).__name__}; give tensors or plain values"
        )
