"""What of a PyTorch job lies on its devices: the storages of its tensors, each once, and what they are of.

Storages, not tensors: tied weights, views, buckets of DDP and shards of FSDP stay what they are, since only
the memory below them goes and comes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

MODEL, GRADIENTS, OPTIMIZER, LORA, EXTRA = "model", "gradients", "optimizer", "lora", "extra"
TAGS = (MODEL, GRADIENTS, OPTIMIZER, LORA, EXTRA)
_ADAPTER = re.compile(r"(^|\.)lora_")  # PEFT's names: lora_A, lora_B, lora_embedding_A, lora_magnitude_vector


@dataclass
class Region:
    """One storage and the tags of all tensors that lie in it."""

    storage: Any
    tags: set[str] = field(default_factory=set)


@dataclass
class Found:
    """The storages of a job, and how many bytes of others cannot be moved (foreign or shared memory)."""

    regions: list[Region]
    fixed_bytes: int = 0


def find(
    holds: Any,
    models: Iterable[Any],
    optimizers: Iterable[Any],
    extra: Iterable[Any],
) -> Found:
    """Return what *models*, their gradients, *optimizers* and *extra* tensors have where *holds* is true."""
    regions: dict[int, Region] = {}
    fixed: dict[int, int] = {}
    for tag, tensor in _tagged(list(models), list(optimizers), extra):
        for plain in _plain(tensor):
            storage = plain.untyped_storage()
            size = storage.nbytes()
            if not size or not holds(storage):
                continue
            if not storage.resizable():
                fixed[storage.data_ptr()] = size
                continue
            regions.setdefault(storage.data_ptr(), Region(storage)).tags.add(tag)
    return Found(list(regions.values()), sum(fixed.values()))


def reshard(models: Iterable[Any]) -> None:
    """Have FSDP2 give up whole parameters that it gathered: their shards alone are state."""
    for model in models:
        for module in model.modules():
            if hasattr(module, "unshard") and hasattr(module, "reshard"):
                module.reshard()


def bytes_of(storage: Any, offset: int, size: int) -> Any:
    """Return a range of *storage* as a tensor of bytes that shares its memory."""
    import torch

    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage, offset, (size,))


def _tagged(models: list[Any], optimizers: list[Any], extra: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    for model in models:
        yield from _of_model(model)
    for optimizer in optimizers:
        yield from _of_optimizer(optimizer)
    for tensor in _tensors(list(extra)):
        yield EXTRA, tensor


def _of_model(model: Any) -> Iterator[tuple[str, Any]]:
    for name, tensor in model.named_parameters():
        yield from _of_parameter(tensor)
        if _ADAPTER.search(name):
            yield LORA, tensor
    for tensor in model.buffers():
        yield MODEL, tensor


def _of_optimizer(optimizer: Any) -> Iterator[tuple[str, Any]]:
    for group in optimizer.param_groups:
        for tensor in group["params"]:
            yield from _of_parameter(tensor)
    # Not by state_dict(), which makes copies.
    for tensor in _tensors(list(optimizer.state.values())):
        yield OPTIMIZER, tensor


def _of_parameter(parameter: Any) -> Iterator[tuple[str, Any]]:
    yield MODEL, parameter
    for name in ("grad", "main_grad"):  # the second is Megatron's
        gradient = getattr(parameter, name, None)
        if gradient is not None:
            yield GRADIENTS, gradient


def _tensors(value: Any) -> Iterator[Any]:
    """Yield the tensors in *value*, through mappings and sequences; what can be called is called for them."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif callable(value):
        yield from _tensors(value())


def _plain(tensor: Any) -> Iterator[Any]:
    """Yield the tensors with memory of their own that *tensor* is made of: a DTensor's shard, for example."""
    parts = getattr(tensor, "__tensor_flatten__", None)
    if parts is None:
        yield tensor
        return
    for name in parts()[0]:
        part = getattr(tensor, name)
        if hasattr(part, "untyped_storage"):  # a DTensor names its mesh here too
            yield from _plain(part)
