from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from slurm_interleave.client.core.states import Context
from slurm_interleave.client.sim import ChecksumMismatch, SimDevice, SimError
from slurm_interleave.client.sim.arena import Arena
from slurm_interleave.client.sim.ranges import Range, address_of, load, save

PID = os.getpid()


def soon() -> float:
    return time.monotonic() + 10


def test_several_copies_of_one_range_stand_side_by_side_wherever_the_buffer_lies(
    a: SimDevice, b: SimDevice, arena: Arena
) -> None:
    front = b.put(np.zeros(8))
    buffer = a.put(np.arange(8, dtype=np.uint8))
    part = [Range(PID, buffer.address + 2, 3)]

    assert save(arena, "a", "first", part, soon()) == 3
    buffer.set(np.full(8, 9, np.uint8))
    save(arena, "a", "second", part, soon())
    arena.snapshot("a")
    front.free()
    arena.restore("a")
    assert load(arena, "a", "first", part, soon()) == 3

    assert buffer.get().tolist() == [9, 9, 2, 3, 4, 9, 9, 9]
    load(arena, "a", "second", part, soon())
    assert buffer.get().tolist() == [9] * 8
    assert arena.memory_of("a").context is Context.RESIDENT


def test_a_name_takes_the_place_of_the_older_copy(a: SimDevice, arena: Arena) -> None:
    buffer = a.put(np.arange(8, dtype=np.uint8))
    save(arena, "a", "x", [Range(PID, buffer.address, 8)], soon())

    save(arena, "a", "x", [Range(PID, buffer.address, 4)], soon())

    with pytest.raises(SimError, match="snapshot x has no copy of 8 bytes"):
        load(arena, "a", "x", [Range(PID, buffer.address, 8)], soon())


@pytest.mark.parametrize(
    ("pid", "offset", "size"),
    [(PID, 4090, 10), (PID + 1, 0, 8), (PID, -1, 8), (PID, 1 << 41, 8)],
    ids=["beyond its end", "another process", "before it", "far away"],
)
def test_what_is_not_the_processs_own_is_refused(
    a: SimDevice, b: SimDevice, arena: Arena, pid: int, offset: int, size: int
) -> None:
    buffer = a.put(np.zeros(8))
    b.put(np.zeros(8))

    with pytest.raises(SimError, match=f"process {pid} has no {size} bytes at"):
        save(arena, "a", "x", [Range(pid, buffer.address + offset, size)], soon())


def test_another_jobs_memory_is_out_of_reach(a: SimDevice, b: SimDevice, arena: Arena) -> None:
    theirs = b.put(np.zeros(8))

    with pytest.raises(SimError, match="job a: process"):
        save(arena, "a", "x", [Range(PID, theirs.address, 8)], soon())


def test_a_broken_copy_changes_nothing_on_the_device(a: SimDevice, arena: Arena, folder: Path) -> None:
    buffer = a.put(np.arange(8, dtype=np.uint8))
    part = [Range(PID, buffer.address, 4), Range(PID, buffer.address + 4, 4)]
    save(arena, "a", "x", part, soon())
    (broken,) = folder.glob("regions/a/*/1")
    broken.write_bytes(b"xxxx")
    buffer.set(np.full(8, 9, np.uint8))

    with pytest.raises(ChecksumMismatch):
        load(arena, "a", "x", part, soon())

    assert buffer.get().tolist() == [9] * 8


@pytest.mark.parametrize("move", [save, load])
@pytest.mark.parametrize("why", ["stopped", "the time was up"])
def test_a_copy_that_is_ended_early_changes_nothing(
    a: SimDevice, arena: Arena, folder: Path, move: Callable[..., int], why: str
) -> None:
    buffer = a.put(np.full(8, 1, np.uint8))
    part = [Range(PID, buffer.address, 4), Range(PID, buffer.address + 4, 4)]
    save(arena, "a", "x", part, soon())
    buffer.set(np.full(8, 2, np.uint8))
    before, stop = sorted(folder.glob("regions/**/*")), threading.Event()
    if why == "stopped":
        stop.set()

    with pytest.raises(SimError, match=why):
        move(arena, "a", "x", part, soon() if stop.is_set() else time.monotonic() - 1, stop)

    assert buffer.get().tolist() == [2] * 8
    assert sorted(folder.glob("regions/**/*")) == before
    load(arena, "a", "x", part, soon())
    assert buffer.get().tolist() == [1] * 8


def test_a_name_that_was_never_saved_is_named(a: SimDevice, arena: Arena) -> None:
    buffer = a.put(np.zeros(8))

    with pytest.raises(SimError, match="there is no snapshot x; save it first"):
        load(arena, "a", "x", [Range(PID, buffer.address, 8)], soon())


def test_copies_of_a_job_that_has_ended_go_when_the_agent_starts(
    a: SimDevice, b: SimDevice, arena: Arena, folder: Path
) -> None:
    buffers = a.put(np.zeros(8)), b.put(np.zeros(8))
    for job, buffer in zip("ab", buffers, strict=True):
        save(arena, job, "x", [Range(PID, buffer.address, 8)], soon())
    buffers[0].free()

    arena.recover()

    assert [path.name for path in folder.glob("regions/*")] == ["b"]


def test_a_saved_job_has_no_ranges_to_copy(a: SimDevice, arena: Arena) -> None:
    buffer = a.put(np.zeros(8))
    arena.snapshot("a")

    with pytest.raises(SimError, match="restore the job first"):
        save(arena, "a", "x", [Range(PID, address_of(buffer.number), 8)], soon())


def test_copies_go_with_their_job(a: SimDevice, arena: Arena, folder: Path) -> None:
    buffer = a.put(np.zeros(8))
    save(arena, "a", "../x", [Range(PID, buffer.address, 8)], soon())
    assert list(folder.glob("regions/a/*/0"))

    arena.discard("a")

    assert not list(folder.glob("regions/*"))
