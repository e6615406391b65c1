"""What the offloader needs of a device: which storages lie on it, streams, memory pinned for its copies."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

_PORTABLE = 1  # cudaHostRegisterPortable: pinned for all devices of the process


class Device(Protocol):
    """Where the storages lie that are to go to host memory."""

    def holds(self, storage: Any) -> bool:
        """Tell whether an `UntypedStorage` lies here."""

    def register(self, address: int, size: int) -> bool:
        """Pin host memory for fast copies; False: it could not be, and copies are slower."""

    def unregister(self, address: int) -> None:
        """Undo it, before the memory is given back."""

    def cpus_near(self) -> set[int]:
        """Return the processors whose memory is nearest; empty: not known."""

    def copying(self, devices: Sequence[Any]) -> contextlib.AbstractContextManager[Streams]:
        """Give streams to copy on; at the end all copies are done, and device and host agree."""

    def on(self, device: Any) -> contextlib.AbstractContextManager[Any]:
        """Make *device* the one of this thread for a while: a new thread begins with the node's first."""

    def release(self) -> None:
        """Give memory that no tensor uses back to the device's driver."""


class Streams(Protocol):
    """Streams that copies are put on by turns."""

    def copy(self, to: Any, source: Any, device: Any) -> None:
        """Begin a copy between two tensors of bytes, one of them on *device*."""


class CudaDevice:
    """The accelerators that torch calls `cuda`, ROCm's too."""

    _STREAMS = 2  # a device: the end of one copy overlaps the begin of the next

    def __init__(self) -> None:
        self._streams: dict[Any, list[Any]] = {}
        self._next = 0

    def holds(self, storage: Any) -> bool:
        """Tell whether *storage* lies on a device."""
        return bool(storage.device.type == "cuda")

    def register(self, address: int, size: int) -> bool:
        """Pin host memory once: torch's own allocator would round it up to a power of two."""
        import torch

        if int(torch.cuda.cudart().cudaHostRegister(address, size, _PORTABLE)) == 0:
            return True
        # The error would come up again, as somebody else's, at the next launch.
        with contextlib.suppress(RuntimeError):
            torch.zeros(1, device="cuda")
        return False

    def unregister(self, address: int) -> None:
        """Unpin it."""
        import torch

        torch.cuda.cudart().cudaHostUnregister(address)

    def cpus_near(self) -> set[int]:
        """Return the processors of the NUMA node that the current device hangs on."""
        import torch

        of = torch.cuda.get_device_properties(torch.cuda.current_device())
        if not hasattr(of, "pci_bus_id"):
            return set()
        return _cpus_of_pci(f"{of.pci_domain_id:04x}:{of.pci_bus_id:02x}:{of.pci_device_id:02x}.0")

    @contextlib.contextmanager
    def copying(self, devices: Sequence[Any]) -> Iterator[CudaDevice]:
        """Wait for the work under way, give streams, and wait for what was put on them."""
        import torch

        for device in devices:
            torch.cuda.synchronize(device)
            if device not in self._streams:
                self._streams[device] = [torch.cuda.Stream(device) for _ in range(self._STREAMS)]
        try:
            yield self
        finally:
            for device in devices:
                for stream in self._streams[device]:
                    stream.synchronize()

    def copy(self, to: Any, source: Any, device: Any) -> None:
        """Begin a copy on the next stream of *device*."""
        import torch

        streams = self._streams[device]
        self._next = (self._next + 1) % len(streams)
        with torch.cuda.stream(streams[self._next]):
            to.copy_(source, non_blocking=True)

    def on(self, device: Any) -> contextlib.AbstractContextManager[Any]:
        """Make *device* the current one."""
        import torch

        guard: contextlib.AbstractContextManager[Any] = torch.cuda.device(device)
        return guard

    def release(self) -> None:
        """Empty torch's cache of freed blocks."""
        import torch

        gc.collect()
        torch.cuda.empty_cache()


class HostDevice:
    """Takes tensors in host memory for those of a device: for tests and measurements where there is none."""

    def holds(self, storage: Any) -> bool:
        """Tell whether *storage* is in host memory."""
        return bool(storage.device.type == "cpu")

    def register(self, _address: int, _size: int) -> bool:
        """Do nothing: the processor copies."""
        return True

    def unregister(self, _address: int) -> None:
        """Do nothing."""

    def cpus_near(self) -> set[int]:
        """Return nothing: all are as near."""
        return set()

    @contextlib.contextmanager
    def copying(self, _devices: Sequence[Any]) -> Iterator[HostDevice]:
        """Give itself: each copy is done when it returns."""
        yield self

    def copy(self, to: Any, source: Any, _device: Any) -> None:
        """Copy."""
        to.copy_(source)

    def on(self, _device: Any) -> contextlib.AbstractContextManager[Any]:
        """Do nothing: there is one."""
        return contextlib.nullcontext()

    def release(self) -> None:
        """Do nothing: freed memory is free."""


def _cpus_of_pci(address: str) -> set[int]:
    """Return the processors near a PCI device, by sysfs; empty where it does not say."""
    from pathlib import Path

    try:
        text = (Path("/sys/bus/pci/devices") / address / "local_cpulist").read_text().strip()
    except OSError:
        return set()
    cpus: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cpus |= set(range(int(first), int(last or first) + 1))
    return cpus
