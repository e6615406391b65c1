"""The job's state on the device, and nowhere else: what is not saved and restored with it is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from numpy.typing import NDArray

from grpo.policy import Policy
from slurm_interleave.client.sim import SimDevice

Array = NDArray[Any]
Result = TypeVar("Result")


class Tensors(NamedTuple):
    """All that the job has on the device: arrays inside a kernel."""

    parameters: Array
    reference: Array  # the parameters of the start
    gradient: Array
    first_moment: Array  # Adam's means of the gradient and of its square
    second_moment: Array
    updates: Array  # (1,): how many Adam has made
    inputs: Array  # (samples, places, features)
    answers: Array  # (samples, places)
    log_probs: Array  # (samples, places): of the digits chosen, by the policy that chose them
    reference_log_probs: Array
    hidden: Array  # (samples, places, hidden): activations
    back: Array  # the gradient by them

    def rows(self, first: int = 0, last: int | None = None) -> Tensors:
        """Return the same memory, with each place of the samples *first* to before *last* as a row."""
        return Tensors(
            *self[:_PER_SAMPLE],
            *(tensor[first:last].reshape(-1, *tensor.shape[2:]) for tensor in self[_PER_SAMPLE:]),
        )


_PER_SAMPLE = Tensors._fields.index("inputs")


def layout(policy: Policy, samples: int) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return the shape and type of each of the `Tensors`."""
    flat = ((policy.parameters,), "float32")
    places = (samples, policy.digits)
    return {
        **dict.fromkeys(("parameters", "reference", "gradient", "first_moment", "second_moment"), flat),
        "updates": ((1,), "int64"),
        "inputs": ((*places, policy.features), "float32"),
        "answers": (places, "int8"),
        **dict.fromkeys(("log_probs", "reference_log_probs"), (places, "float32")),
        **dict.fromkeys(("hidden", "back"), ((*places, policy.hidden), "float32")),
    }


class Memory:
    """Allocates the tensors, and runs kernels on them. Raises `OutOfMemory`, `NotResident`."""

    def __init__(self, device: SimDevice, policy: Policy, samples: int) -> None:
        shapes = layout(policy, samples)
        self._device = device
        self._buffers = [device.empty(*shapes[name]) for name in Tensors._fields]
        self.device_s = 0.0

    @property
    def nbytes(self) -> int:
        """Size of the state in bytes."""
        return sum(buffer.nbytes for buffer in self._buffers)

    def run(self, name: str, kernel: Callable[[Tensors], Result], seconds: float = 0.0) -> Result:
        """Run *kernel* on the tensors for at least *seconds*; what it returns comes to the host."""
        began = time.monotonic()
        result: Result = self._device.run(
            name, lambda *arrays: kernel(Tensors(*arrays)), *self._buffers, seconds=seconds
        )
        self.device_s += time.monotonic() - began
        return result

    def free(self) -> None:
        """Give the memory back."""
        for buffer in self._buffers:
            buffer.free()
