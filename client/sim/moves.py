"""Snapshot and restore: all of a job's buffers move, or none."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from slurm_interleave.client.sim import records, transfer
from slurm_interleave.client.sim.errors import SimError, StillWorking
from slurm_interleave.client.sim.node import SimNode
from slurm_interleave.client.sim.processes import this_process
from slurm_interleave.client.sim.settings import GIB
from slurm_interleave.client.sim.table import Buffer, Move, Table, open_shared

_LOOK_AGAIN_S = 0.002  # how often a snapshot looks whether the job's work has ended


def snapshot(node: SimNode, job: str, deadline: float, stop: threading.Event | None, *, spilled: bool) -> int:
    """See `Arena.snapshot`; *deadline* is on the monotonic clock."""
    with moving(node, job, "snapshot", deadline) as buffers:
        going = {number: buffer for number, buffer in buffers.items() if not buffer.saved}
        pace = transfer.Pace(_speed(node, "snapshot_gib_s"), deadline, stop)
        records.make_folder(node.directory / "host")
        records.make_folder(node.directory / "host" / job)
        places, end = _places(buffers, spilled=spilled)
        host = node.host_memory(job, end, spilled=spilled) if going else memoryview(b"")
        sums = {}
        for number, b in going.items():
            part = host[places[number] : places[number] + b.size]
            sums[number] = transfer.copy(node.view(b), part, b.device, pace)
        if spilled and going:
            node.write_out(job)
        with node.transaction() as table:
            for number, checksum in sums.items():
                buffer = table.buffers[number]
                buffer.saved, buffer.place, buffer.checksum = True, places[number], checksum
                buffer.spilled = spilled
    return sum(buffer.size for buffer in going.values())


def restore(
    node: SimNode, job: str, devices: Mapping[int, int], deadline: float, stop: threading.Event | None
) -> int:
    """See `Arena.restore`; *deadline* is on the monotonic clock."""
    with moving(node, job, "restore", deadline) as buffers:
        saved = {number: buffer for number, buffer in buffers.items() if buffer.saved}
        with node.transaction() as table:
            places = _set_room_aside(node, table, job, saved, devices)
        pace = transfer.Pace(_speed(node, "restore_gib_s"), deadline, stop)
        hosts = {spilled: _saved_memory(node, job, saved, spilled=spilled) for spilled in (False, True)}
        for b in places.values():
            part = hosts[b.spilled][b.place : b.place + b.size]
            transfer.copy_back(part, node.view(b), b.device, b.checksum, pace)
        with node.transaction() as table:
            table.buffers.update({n: replace(b, spilled=False) for n, b in places.items()})
            table.moves[job].room = []
        if any(b.spilled for b in saved.values()):
            node.forget_spilled(job)
    return sum(buffer.size for buffer in places.values())


def _saved_memory(node: SimNode, job: str, saved: Mapping[int, Buffer], *, spilled: bool) -> memoryview:
    end = _end(saved, spilled=spilled)
    return node.saved_memory(job, end, spilled=spilled) if end else memoryview(b"")


def _end(buffers: Mapping[int, Buffer], *, spilled: bool) -> int:
    return max((b.place + b.size for b in buffers.values() if b.saved and b.spilled is spilled), default=0)


def _places(buffers: Mapping[int, Buffer], *, spilled: bool) -> tuple[dict[int, int], int]:
    """Return where in host memory each resident buffer goes, behind what is saved already, and the end."""
    end = _end(buffers, spilled=spilled)
    places = {}
    for number, buffer in buffers.items():
        if not buffer.saved:
            places[number], end = end, end + buffer.size
    return places, end


def discard(node: SimNode, job: str, deadline: float) -> None:
    """Forget the job's buffers once its work has ended; *deadline* is on the monotonic clock."""
    with moving(node, job, "discard", deadline) as buffers, node.transaction() as table:
        for number in buffers:
            table.drop(number)


def _set_room_aside(
    node: SimNode, table: Table, job: str, saved: Mapping[int, Buffer], devices: Mapping[int, int]
) -> dict[int, Buffer]:
    """Return where each buffer goes; the ranges count as taken from now on. Raises `OutOfMemory`."""
    places = {}
    for number, buffer in saved.items():
        device = devices.get(buffer.device, buffer.device)
        node.check_index(device)
        offset = node.set_aside(table, job, device, buffer.size)
        table.moves[job].room.append((device, offset, buffer.size))
        places[number] = replace(buffer, device=device, offset=offset, saved=False)
    return places


@contextmanager
def moving(node: SimNode, job: str, verb: str, deadline: float) -> Iterator[dict[int, Buffer]]:
    """Give the job's buffers while nobody else uses or moves them."""
    with node.transaction() as table:
        if job in table.moves:
            raise SimError(f"job {job}: a {table.moves[job].verb} is under way already")
        table.moves[job] = Move(verb, this_process())
    try:
        with _alone(node, job, deadline):
            yield node.look().of_job(job)
    finally:
        with node.transaction() as table:
            table.end_move(job)


@contextmanager
def _alone(node: SimNode, job: str, deadline: float) -> Iterator[None]:
    """Hold the job's use lock alone: its work on the device has ended and no new work begins."""
    descriptor = open_shared(node.use_folder / job, os.O_RDWR | os.O_CREAT)
    try:
        while not _try_lock(descriptor):
            if time.monotonic() > deadline:
                raise StillWorking(f"job {job} still works on its device; nothing was moved")
            time.sleep(_LOOK_AGAIN_S)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _speed(node: SimNode, key: str) -> float:
    """Return the speed in bytes per second as set now."""
    config = records.read_config(node.directory) or node.config
    return float(getattr(config, key)) * GIB
