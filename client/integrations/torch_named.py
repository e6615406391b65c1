"""Named copies of chosen ranges of device memory, several side by side.

On the workload channel a request of the `memory_regions` backend comes as tags: `snapshot:NAME`, and
`region:ADDRESS+SIZE` for each range, numbers as in 0x7f00+4096.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_interleave.client.core.errors import BadArgument, WrongState
from slurm_interleave.client.core.ranges import SNAPSHOT_TAG, parse_ranges
from slurm_interleave.client.integrations.torch_arena import Arena, aligned
from slurm_interleave.client.integrations.torch_device import Device
from slurm_interleave.client.integrations.torch_regions import Region, bytes_of


@dataclass(frozen=True)
class Piece:
    """*size* bytes of a storage, from *offset* on."""

    storage: Any
    offset: int
    size: int

    @property
    def key(self) -> tuple[int, int, int]:
        """What makes it the same piece: the storage itself, wherever its memory is now."""
        return (self.storage._cdata, self.offset, self.size)  # noqa: SLF001 - no public name for its identity


class NamedSnapshots:
    """The copies of one process."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._arenas: dict[str, Arena] = {}
        self._copies: dict[str, dict[tuple[int, int, int], tuple[Piece, Any]]] = {}

    def command(self, tags: Sequence[str]) -> bool:
        """Tell whether *tags* ask for a copy of ranges."""
        return any(tag.startswith(SNAPSHOT_TAG) for tag in tags)

    def save(self, regions: Iterable[Region], tags: Sequence[str]) -> int:
        """Copy the ranges that *tags* name. Raises `BadArgument`, `WrongState`."""
        name, ranges = parse_ranges(tags)
        return self._keep(name, [_piece(regions, address, size) for address, size in ranges])

    def load(self, regions: Iterable[Region], tags: Sequence[str]) -> int:
        """Copy the ranges that *tags* name back. Raises `BadArgument`, `WrongState`."""
        name, ranges = parse_ranges(tags)
        return self._bring(name, [_piece(regions, address, size) for address, size in ranges])

    def keep(self, name: str, regions: Iterable[Region]) -> int:
        """Copy whole storages under *name*."""
        return self._keep(name, [Piece(region.storage, 0, region.storage.nbytes()) for region in regions])

    def bring(self, name: str) -> int:
        """Copy all that was saved under *name* back."""
        return self._bring(name, [piece for piece, _ in self._copy(name).values()])

    def forget(self, name: str) -> None:
        """Give the memory of *name* back; an unknown one is fine."""
        self._copies.pop(name, None)
        if (arena := self._arenas.pop(name, None)) is not None:
            arena.close()

    def close(self) -> None:
        """Give all memory back."""
        for name in list(self._arenas):
            self.forget(name)

    def _keep(self, name: str, pieces: Sequence[Piece]) -> int:
        if not pieces:
            raise WrongState(f"snapshot {name}: there is nothing on the devices to copy")
        arena = self._arenas.setdefault(name, Arena(self._device))
        self._copies.pop(name, None)
        arena.clear()
        with self._device.on(pieces[0].storage.device):
            room = arena.reserve(sum(aligned(piece.size) for piece in pieces))
            copies = {piece.key: (piece, room.take(piece.size)) for piece in pieces}
            self._move(list(copies.values()), back=False)
        self._copies[name] = copies
        return sum(piece.size for piece, _ in copies.values())

    def _bring(self, name: str, pieces: Sequence[Piece]) -> int:
        copies = self._copy(name)
        for piece in pieces:
            if piece.key not in copies:
                raise WrongState(f"snapshot {name} has no copy of these {piece.size} bytes; save them first")
            if piece.storage.nbytes() < piece.offset + piece.size:
                raise WrongState(
                    f"snapshot {name}: its {piece.size} bytes are not on the device; resume first"
                )
        with self._device.on(pieces[0].storage.device):
            self._move([copies[piece.key] for piece in pieces], back=True)
        return sum(piece.size for piece in pieces)

    def _copy(self, name: str) -> dict[tuple[int, int, int], tuple[Piece, Any]]:
        if name not in self._copies:
            have = ", ".join(sorted(self._copies)) or "none"
            raise WrongState(f"there is no snapshot {name}; there are: {have}")
        return self._copies[name]

    def _move(self, pairs: Sequence[tuple[Piece, Any]], *, back: bool) -> None:
        devices = list(dict.fromkeys(piece.storage.device for piece, _ in pairs))
        with self._device.copying(devices) as streams:
            for piece, host in pairs:
                there = bytes_of(piece.storage, piece.offset, piece.size)
                to, source = (there, host) if back else (host, there)
                streams.copy(to, source, piece.storage.device)


def _piece(regions: Iterable[Region], address: int, size: int) -> Piece:
    """Return the piece at *address*. Raises `BadArgument` if no storage of the job holds all of it."""
    for region in regions:
        start = region.storage.data_ptr()
        if start <= address and address + size <= start + region.storage.nbytes():
            return Piece(region.storage, address - start, size)
    raise BadArgument(f"{size} bytes at {address:#x} are in no storage of the model, gradients or optimizers")
