"""Named copies of chosen ranges of a job's buffers, beside each other; the buffers stay where they are.

An address is that of a buffer, which holds wherever the buffer lies now, and an offset: `address_of`.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_interleave.client.sim import checksum, records, transfer
from slurm_interleave.client.sim.errors import ChecksumMismatch, SimError
from slurm_interleave.client.sim.moves import moving
from slurm_interleave.client.sim.node import SimNode
from slurm_interleave.client.sim.table import Buffer

_OFFSET_BITS = 40
_FRESH = ".new"


@dataclass(frozen=True)
class Range:
    """*size* bytes at *address* of a process."""

    pid: int
    address: int
    size: int


def address_of(number: int, offset: int = 0) -> int:
    """Return the address of a byte of the buffer with this number."""
    return (number << _OFFSET_BITS) + offset


def save(
    node: SimNode,
    job: str,
    name: str,
    ranges: Sequence[Range],
    deadline: float,
    stop: threading.Event | None = None,
    *,
    spilled: bool = False,
) -> int:
    """Copy *ranges* of *job* under *name*, in place of an older copy of that name; return the bytes.

    *spilled*: to the node's folder on disk instead of host memory.
    Raises `SimError`: nothing has changed, and an older copy is still there. *deadline*: monotonic clock.
    """
    with moving(node, job, "snapshot", deadline) as buffers:
        views = [_view(node, job, buffers, each) for each in ranges]
        pace = transfer.Pace(0, deadline, stop)
        folder = _folder(node, job, name, spilled=spilled)
        fresh = folder.with_suffix(_FRESH)
        shutil.rmtree(fresh, ignore_errors=True)
        try:
            _make(fresh, spilled=spilled)
            index: list[dict[str, Any]] = []
            for place, (each, (device, view)) in enumerate(zip(ranges, views, strict=True)):
                index.append({"address": each.address, "size": each.size, "file": str(place)})
                index[-1]["checksum"] = _save(view, fresh / str(place))
                pace.moved(device, each.size)
            (fresh / "index.json").write_text(json.dumps(index))
            shutil.rmtree(folder, ignore_errors=True)
            fresh.rename(folder)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)  # what it took may be the last that there was
            raise
        if node.spill is not None:
            shutil.rmtree(_folder(node, job, name, spilled=not spilled), ignore_errors=True)
    return sum(each.size for each in ranges)


def load(
    node: SimNode,
    job: str,
    name: str,
    ranges: Sequence[Range],
    deadline: float,
    stop: threading.Event | None = None,
) -> int:
    """Copy *ranges* back from the copy *name*; return the bytes.

    Raises `SimError` if that copy has them not or *stop* is set, `ChecksumMismatch` if it is broken; then
    nothing has changed.
    """
    folder = _folder(node, job, name)
    if node.spill is not None and not folder.exists():
        folder = _folder(node, job, name, spilled=True)
    with moving(node, job, "restore", deadline) as buffers:
        copies = _index(folder, job, name)
        views = [_view(node, job, buffers, each) for each in ranges]
        for each in ranges:
            if (each.address, each.size) not in copies:
                raise SimError(
                    f"job {job}: snapshot {name} has no copy of {each.size} bytes at {each.address:#x}"
                )
        found = [copies[each.address, each.size] for each in ranges]
        saved = [_load(folder / copy["file"], copy["checksum"]) for copy in found]
        pace = transfer.Pace(0, deadline, stop)
        for data, (device, _) in zip(saved, views, strict=True):
            pace.moved(device, len(data))  # from here on it is too late to stop
        for data, (device, view) in zip(saved, views, strict=True):
            transfer.copy(data, view, device, transfer.Pace(0, math.inf))
    return sum(each.size for each in ranges)


def recover(node: SimNode) -> None:
    """Give back what a copy has taken that was under way when its agent was killed."""
    half = list((node.directory / "regions").glob(f"*/*{_FRESH}"))
    if node.spill is not None:
        half += node.spill.glob(f"*/copies/*{_FRESH}")
    for folder in half:
        shutil.rmtree(folder, ignore_errors=True)


def _folder(node: SimNode, job: str, name: str, *, spilled: bool = False) -> Path:
    copies = node.spill_folder(job) / "copies" if spilled else node.directory / "regions" / job
    return copies / hashlib.sha256(name.encode()).hexdigest()  # a name is any text


def _make(folder: Path, *, spilled: bool) -> None:
    if spilled:
        folder.mkdir(mode=0o700, parents=True)
        return
    for path in (folder.parent.parent, folder.parent, folder):
        records.make_folder(path)


def _index(folder: Path, job: str, name: str) -> dict[tuple[int, int], dict[str, Any]]:
    try:
        rows = json.loads((folder / "index.json").read_text())
    except FileNotFoundError:
        raise SimError(f"job {job}: there is no snapshot {name}; save it first") from None
    return {(row["address"], row["size"]): row for row in rows}


def _view(node: SimNode, job: str, buffers: dict[int, Buffer], each: Range) -> tuple[int, memoryview]:
    """Return the device and bytes of a range. Raises `SimError` if they are not this job's, or not there."""
    number, offset = divmod(each.address, 1 << _OFFSET_BITS)
    buffer = buffers.get(number)
    if buffer is None or buffer.owner.pid != each.pid or offset + each.size > buffer.size:
        raise SimError(f"job {job}: process {each.pid} has no {each.size} bytes at {each.address:#x}")
    if buffer.saved:
        raise SimError(f"job {job}: the bytes at {each.address:#x} are in host memory; restore the job first")
    return buffer.device, node.view(buffer)[offset : offset + each.size]


def _save(view: memoryview, path: Path) -> str:
    try:
        path.write_bytes(view)
    except OSError as error:
        raise SimError(f"{path}: {len(view)} bytes cannot be saved there: {error}") from error
    return checksum.of(view)


def _load(path: Path, expected: str) -> memoryview:
    try:
        with path.open("rb") as file:
            data = memoryview(bytearray(os.fstat(file.fileno()).st_size))
            file.readinto(data)
    except OSError as error:
        raise ChecksumMismatch(f"{path}: the saved range cannot be read: {error}") from error
    seen = checksum.of(data, expected)
    if seen != expected:
        raise ChecksumMismatch(f"{path}: the saved range has checksum {seen}, it was saved with {expected}")
    return data
