"""How many images one step can hold on this device: what ``--batch auto`` takes and an out-of-memory message names.

Trial steps of two and of four images measure what a step needs and what each image adds; a line through both does the
rest. The trials train a network of their own, before anything of the run exists.
"""

import gc
from collections.abc import Callable

import torch
from torch import Tensor

from lucid_data import Batch, available_memory, collate
from lucid_train.config import FitConfig
from lucid_train.datamodule import DetectionDataModule
from lucid_train.device import chosen_device
from lucid_train.module import DetectionLitModule
from lucid_train.multiscale import resized, sizes
from lucid_train.processes import world_size

MOST = 64
"""Images beyond which a larger batch is a choice for people: fewer steps, another learning rate."""

USED = 0.8
"""The part of free memory that is planned for; allocators, labels and libraries need some."""


def fitting_batch(needs: dict[int, int], free: int, most: int = MOST) -> int:
    """Return the largest power of two of images, at most ``most``, whose step fits into ``free`` bytes; at least 1.

    Args:
        needs: bytes that trial steps needed, by their images; two of them.
        free: bytes of the device that a run may use.
        most: the limit.

    Example:
        >>> fitting_batch({2: 300, 4: 500}, free=2000)
        8
    """
    (few, less), (many, more) = sorted(needs.items())
    each = max(1.0, (more - less) / (many - few))
    fits = (USED * free - (less - few * each)) / each
    return 1 << (max(1, min(most, int(fits))).bit_length() - 1)


def measured_batch(
    config: FitConfig, data: DetectionDataModule, build: Callable[[], DetectionLitModule]
) -> int:
    """Return the batch that fits this device, by trial steps of a network that ``build`` makes."""
    device = torch.device(chosen_device(config.run.device))
    module = build().to(device, memory_format=torch.channels_last).train()
    pipeline, dtype, catalog = data.train_pipeline(), torch.bfloat16, data.train_catalog
    # the images with the most objects, on the largest canvas: no later step may need more
    objects = catalog.records.starts[1:] - catalog.records.starts[:-1]
    fullest = objects.argsort(kind="stable")[::-1].tolist()
    if config.run.precision == "16-mixed":
        dtype = torch.float16
    needs = {}
    for images in (2, 4):
        samples = [pipeline(0, fullest[number % len(fullest)]) for number in range(images)]
        batch = data.on_after_batch_transfer(collate(samples).to(device), 0)
        batch = resized(batch, sizes(batch.images.shape[-1], config.data.multi_scale)[-1])
        with torch.autocast(device.type, dtype, enabled=config.run.precision != "32"):
            needs[images] = step_bytes(module, batch, device)
    del module
    gc.collect()
    free = free_bytes(device) // (world_size() if device.type == "cpu" else 1)
    return fitting_batch(needs, free, min(MOST, max(1, len(data.train_catalog))))


def step_bytes(module: DetectionLitModule, batch: Batch, device: torch.device) -> int:
    """Return the bytes that a training step needs: its peak on CUDA, elsewhere what autograd keeps and half again."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        module.objective(batch).total.backward()
        return torch.cuda.max_memory_allocated(device)
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        module.objective(batch).total.backward()
    return sum(kept.values()) * 3 // 2


def free_bytes(device: torch.device) -> int:
    """Return the bytes that a run may use: free memory of the device, on a CPU what the system can give."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(device)[0]
    return available_memory()


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that the memory for a step ran out; a cache that does not fit says so itself."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator: can't allocate memory" in str(error)
