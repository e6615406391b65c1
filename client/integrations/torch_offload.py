"""Takes a PyTorch job's state off its devices and brings it back; see `torch_turns` for when.

All that lies on the devices for the model, its gradients and the optimizers goes to host memory that is set
aside once; every tensor object, view and tie stays. Work only while the lease is held: at other times another
thread of this process may move the state. Not for CUDA graphs: addresses are others when the state is back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_interleave.client.core.errors import BadArgument, WrongState
from slurm_interleave.client.core.ranges import SPILL_TAG
from slurm_interleave.client.integrations import torch_regions
from slurm_interleave.client.integrations.torch_arena import Arena, Stretch, aligned
from slurm_interleave.client.integrations.torch_device import CudaDevice, Device
from slurm_interleave.client.integrations.torch_named import NamedSnapshots
from slurm_interleave.client.integrations.torch_regions import Region

if TYPE_CHECKING:
    from slurm_interleave.client.workload import Workload


@dataclass(frozen=True)
class Kept:
    """A storage whose bytes are in host memory now, as the tensor *host* in *room*."""

    region: Region
    size: int
    host: Any
    room: Stretch


@dataclass
class Tensors:
    """Where to look for what lies on the devices; `extra` are tensors, or functions that return some."""

    models: list[Any]
    optimizers: list[Any] = field(default_factory=list)
    extra: list[Any] = field(default_factory=list)

    def find(self, device: Device) -> torch_regions.Found:
        """Return the storages there now: gradients and optimizer states come and go."""
        return torch_regions.find(device.holds, self.models, self.optimizers, self.extra)


class Offload:
    """The state of one process. `suspend` and `resume` are all or nothing; both may be repeated."""

    can_discard = False  # a training job cannot make its state anew
    spills = True
    tags: Sequence[str] = torch_regions.TAGS

    def __init__(
        self,
        tensors: Tensors,
        device: Device | None = None,
        tags: Iterable[str] = (),
        busy: Callable[[], bool] = lambda: False,
    ) -> None:
        """*tags*: what is moved where a command names nothing (none: everything); *busy*: not now.

        Raises `BadArgument` for a tag that there is not.
        """
        self._tensors = tensors
        self._device = device or CudaDevice()
        self._chosen = _known(tags) or set(self.tags)
        self._busy = busy
        self._arena = Arena(self._device)
        self._on_disk: list[Arena] = []
        self._kept: list[Kept] = []
        self._named = NamedSnapshots(self._device)
        self._lock = threading.Lock()
        self.workload: Workload | None = None
        self.moves = 0  # how often something left the devices

    @property
    def suspended_bytes(self) -> int:
        """Bytes that are in host memory instead of on a device now."""
        return sum(kept.size for kept in self._kept)

    @property
    def arena_bytes(self) -> int:
        """Host memory that is set aside, and stays so."""
        return self._arena.size

    @property
    def pinned(self) -> bool:
        """Whether all of that is pinned, as fast copies need."""
        return self._arena.pinned

    def resident_bytes(self) -> int:
        """Return the bytes on devices that would be moved now."""
        return sum(region.storage.nbytes() for region in self._regions(self._chosen))

    def fixed_bytes(self) -> int:
        """Return the bytes on devices that cannot be moved, as shared or foreign memory."""
        return self._tensors.find(self._device).fixed_bytes

    def suspend(self, tags: Sequence[str] = (), *, discard: bool = False) -> None:
        """Take what *tags* name off the devices; a tag `spill:FOLDER`: to the disk there.

        Raises `WrongState`, `BadArgument`, `MemoryError`, `OSError`.
        """
        folders = [tag.removeprefix(SPILL_TAG) for tag in tags if tag.startswith(SPILL_TAG)]
        tags = [tag for tag in tags if not tag.startswith(SPILL_TAG)]
        if discard:
            raise WrongState("a training job cannot make its state anew; use mode offload")
        with self._lock:
            self._refuse_at_work()
            if self._named.command(tags):
                self._named.save(self._tensors.find(self._device).regions, tags)
                return
            torch_regions.reshard(self._tensors.models)
            arena = Arena(self._device, Path(folders[0])) if folders else self._arena
            self._suspend(self._regions(_known(tags) or self._chosen), arena)

    def resume(self, tags: Sequence[str] = ()) -> None:
        """Bring what *tags* name back (none: all). Raises what torch raises where a device has no room."""
        with self._lock:
            if self._named.command(tags):
                self._refuse_at_work()
                self._named.load(self._tensors.find(self._device).regions, tags)
                return
            wanted = _known(tags) or set(self.tags)
            self._resume([kept for kept in self._kept if kept.region.tags & wanted])

    def save(self, name: str, tags: Sequence[str] = ()) -> int:
        """Copy what *tags* name (none: all) under *name*, beside other such copies; return the bytes.

        The state stays on the devices. The same name again takes the place of the old copy.
        """
        with self._lock:
            return self._named.keep(name, self._regions(_known(tags) or self._chosen))

    def load(self, name: str) -> int:
        """Copy what was saved under *name* back to where it was; return the bytes. Raises `WrongState`."""
        with self._lock:
            return self._named.bring(name)

    def forget(self, name: str) -> None:
        """Give the host memory of that copy back; an unknown name is fine."""
        with self._lock:
            self._named.forget(name)

    def close(self) -> None:
        """Take no more commands, bring everything back and give the host memory back."""
        if self.workload is not None:
            self.workload.close()
        self.resume()
        self._arena.close()
        self._named.close()

    def _refuse_at_work(self) -> None:
        if self._busy():
            raise WrongState("this process holds its lease and may be at work; yield first")

    def _regions(self, tags: set[str]) -> list[Region]:
        return [region for region in self._tensors.find(self._device).regions if region.tags & tags]

    def _suspend(self, regions: list[Region], arena: Arena) -> None:
        if not regions:
            return
        sizes = [region.storage.nbytes() for region in regions]
        with self._device.on(regions[0].storage.device):
            room = arena.reserve(sum(map(aligned, sizes)))
            going = [Kept(r, size, room.take(size), room) for r, size in zip(regions, sizes, strict=True)]
            try:
                self._copy(going, back=False)
                arena.write_out()
            except BaseException:
                for kept in going:
                    kept.room.give_back()
                if arena is not self._arena:
                    arena.close()
                raise
            for kept in going:
                kept.region.storage.resize_(0)
            self._kept += going
            if arena is not self._arena:
                self._on_disk.append(arena)
            self.moves += 1
            self._device.release()

    def _resume(self, coming: list[Kept]) -> None:
        if not coming:
            return
        with self._device.on(coming[0].region.storage.device):
            try:
                for kept in coming:
                    kept.region.storage.resize_(kept.size)
                self._copy(coming, back=True)
            except BaseException:
                for kept in coming:
                    kept.region.storage.resize_(0)
                self._device.release()
                raise
        here = {id(kept) for kept in coming}
        self._kept = [kept for kept in self._kept if id(kept) not in here]
        for kept in coming:
            kept.room.give_back()
        for arena in self._on_disk:
            if not arena.in_use:
                arena.close()
        self._on_disk = [arena for arena in self._on_disk if arena.in_use]

    def _copy(self, moving: Sequence[Kept], *, back: bool) -> None:
        devices = list(dict.fromkeys(kept.region.storage.device for kept in moving))
        with self._device.copying(devices) as streams:
            for kept in moving:
                there = torch_regions.bytes_of(kept.region.storage, 0, kept.size)
                to, source = (there, kept.host) if back else (kept.host, there)
                streams.copy(to, source, kept.region.storage.device)


def _known(tags: Iterable[str]) -> set[str]:
    """Return *tags* as a set. Raises `BadArgument` for one that there is not."""
    wanted = set(tags)
    if unknown := wanted - set(torch_regions.TAGS):
        raise BadArgument(f"no region {min(unknown)!r}; there are {', '.join(torch_regions.TAGS)}")
    return wanted
