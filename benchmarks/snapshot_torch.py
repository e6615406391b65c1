"""How fast the torch backend moves a job's state, beside plain copies of as many bytes.

`measure("cuda")` is for a machine with a GPU, where the copies go to and from pinned memory; `measure("cpu")`
takes tensors in host memory for those of a device. As a program it prints the same as JSON, and exits with 2
where that cannot be measured.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from figures import seconds

MIB = 1 << 20
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # mallopt(3)
_TENSORS = 16


def measure(device: str = "cuda", mib: int = 4096, rounds: int = 5) -> dict[str, Any]:
    """Return GB/s of suspend and resume and of plain copies both ways, and their ratios, best of *rounds*.

    Raises `ImportError` without torch.
    """
    import torch

    from slurm_interleave.client.integrations.torch_device import CudaDevice, HostDevice
    from slurm_interleave.client.integrations.torch_offload import Offload, Tensors

    if device == "cpu":
        _keep_freed_memory()
        torch.set_num_threads(1)  # as a memcpy has
    size = mib * MIB
    state = [
        torch.empty(size // _TENSORS, dtype=torch.uint8, device=device).fill_(n) for n in range(_TENSORS)
    ]
    offload = Offload(Tensors([], extra=list(state)), HostDevice() if device == "cpu" else CudaDevice())
    plain = _Plain(device, size)
    clock = time.process_time if device == "cpu" else time.perf_counter
    first_s = seconds(offload.suspend, clock)
    offload.resume()
    steps = {"out": plain.out, "suspend": offload.suspend, "back": plain.back, "resume": offload.resume}
    taken = [{name: seconds(step, clock) for name, step in steps.items()} for _ in range(rounds)]
    if any(int(tensor.min()) != n or int(tensor.max()) != n for n, tensor in enumerate(state)):
        raise RuntimeError("the state came back with other bytes")
    best = {name: min(each[name] for each in taken) for name in steps}
    pinned = offload.pinned
    offload.close()
    return {
        "device": device if device == "cpu" else torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "mib": mib,
        "pinned": pinned,
        "first_suspend_s": round(first_s, 3),
        **{f"{name}_gb_s": round(size / took / 1e9, 2) for name, took in best.items()},
        "suspend_over_copy": round(best["out"] / best["suspend"], 3),
        "resume_over_copy": round(best["back"] / best["resume"], 3),
    }


def _keep_freed_memory() -> None:
    """Have malloc keep freed blocks, as the allocator of a device does: else each resume gets new pages."""
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_MMAP_MAX, 0)
    libc.mallopt(_M_TRIM_THRESHOLD, 0x7FFFFFFF)


class _Plain:
    """One block on the device and one in host memory, pinned where there is a GPU."""

    def __init__(self, device: str, size: int) -> None:
        import torch

        gpu = device != "cpu"
        self._there = torch.zeros(size, dtype=torch.uint8, device=device)
        self._here = torch.zeros(size, dtype=torch.uint8, pin_memory=gpu)
        self._wait: Callable[[], None] = torch.cuda.synchronize if gpu else lambda: None

    def out(self) -> None:
        self._here.copy_(self._there, non_blocking=True)
        self._wait()

    def back(self) -> None:
        self._there.copy_(self._here, non_blocking=True)
        self._wait()


def not_here(device: str) -> str:
    """Return why nothing can be measured on *device*; empty: it can."""
    try:
        import torch
    except ImportError as error:
        return f"no_torch: {error}"
    if device != "cpu" and not torch.cuda.is_available():
        return "no_gpu: torch sees no device"
    return ""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--mib", type=int, default=4096)
    args = parser.parse_args()
    if reason := not_here(args.device):
        print(reason, file=sys.stderr)
        sys.exit(2)
    print(json.dumps(measure(args.device, args.mib)))
