from __future__ import annotations

import multiprocessing
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from slurm_interleave.client.core.states import Context
from slurm_interleave.client.sim import (
    ChecksumMismatch,
    NotResident,
    OutOfMemory,
    SimDevice,
    SimError,
    StillWorking,
)
from slurm_interleave.client.sim.arena import Arena
from slurm_interleave.client.sim.settings import SimConfig

KIB = 1024
spawn = multiprocessing.get_context("spawn")


def noise(size: int) -> np.ndarray:
    return np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)


def test_a_snapshot_frees_the_device_and_a_restore_brings_every_byte_back(
    a: SimDevice, b: SimDevice, arena: Arena
) -> None:
    mine, values = a.put(noise(600 * KIB)), noise(600 * KIB)

    assert arena.snapshot("a") == 600 * KIB
    assert arena.memory_of("a").context is Context.SAVED
    assert a.used_bytes == 0
    theirs = b.put(noise(700 * KIB))
    arena.snapshot("b")
    assert arena.restore("a") == 600 * KIB

    assert np.array_equal(mine.get(), values)
    assert arena.memory_of("a").context is Context.RESIDENT
    arena.discard("a")
    arena.restore("b")
    assert np.array_equal(theirs.get(), noise(700 * KIB))
    assert arena.violations() == []


def test_a_restore_finds_another_place(a: SimDevice, b: SimDevice, arena: Arena) -> None:
    mine = a.put(noise(300 * KIB))
    arena.snapshot("a")
    b.put(noise(100 * KIB))

    arena.restore("a")

    assert np.array_equal(mine.get(), noise(300 * KIB))
    assert a.used_bytes == 400 * KIB


def test_a_restore_to_another_device_takes_the_work_along(a: SimDevice, arena: Arena) -> None:
    mine = a.put(noise(300 * KIB))
    arena.snapshot("a")

    arena.restore("a", devices={0: 1})

    assert (arena.used_bytes(0), arena.used_bytes(1)) == (0, 300 * KIB)
    assert a.run("sum", np.sum, mine) == noise(300 * KIB).sum()


def test_a_restore_without_room_moves_nothing_and_gives_the_numbers(
    a: SimDevice, b: SimDevice, arena: Arena
) -> None:
    mine = a.put(noise(600 * KIB))
    arena.snapshot("a")
    theirs = b.put(noise(600 * KIB))

    with pytest.raises(OutOfMemory, match=f"{600 * KIB} bytes asked for, {424 * KIB} of .*job b holds"):
        arena.restore("a")

    assert arena.memory_of("a").context is Context.SAVED
    theirs.free()
    arena.restore("a")
    assert np.array_equal(mine.get(), noise(600 * KIB))


def test_bytes_that_changed_in_host_memory_are_noticed(a: SimDevice, arena: Arena, folder: Path) -> None:
    a.put(noise(10 * KIB))
    arena.snapshot("a")
    (saved,) = (folder / "host" / "a").iterdir()
    raw = bytearray(saved.read_bytes())
    raw[5000] ^= 1
    saved.write_bytes(raw)

    with pytest.raises(ChecksumMismatch, match="it left with"):
        arena.restore("a")

    assert arena.memory_of("a").context is Context.SAVED
    assert a.used_bytes == 0


def test_a_snapshot_waits_for_the_jobs_kernel(a: SimDevice, arena: Arena) -> None:
    buffer = a.put(np.zeros(1))
    began, finish = threading.Event(), threading.Event()

    def kernel(values: np.ndarray) -> None:
        began.set()
        finish.wait()
        values[0] = 1

    work = threading.Thread(target=a.run, args=("long", kernel, buffer))
    work.start()
    began.wait()
    with pytest.raises(StillWorking, match="job a still works on its device; nothing was moved"):
        arena.snapshot("a", deadline_s=0)
    assert arena.memory_of("a").context is Context.RESIDENT
    finish.set()
    arena.snapshot("a")
    work.join()
    arena.restore("a")

    assert buffer.get()[0] == 1


def test_the_speed_can_be_set(folder: Path) -> None:
    arena = Arena.open(folder, SimConfig(memory_mib=4, snapshot_gib_s=0.05, restore_gib_s=0.1))
    SimDevice(arena, 0, "a").put(noise(4096 * KIB))

    start = time.monotonic()
    arena.snapshot("a")
    middle = time.monotonic()
    arena.restore("a")

    assert middle - start >= 4 / 51.2
    assert time.monotonic() - middle >= 4 / 102.4


def test_a_move_beyond_its_deadline_is_undone(folder: Path) -> None:
    arena = Arena.open(folder, SimConfig(memory_mib=4, snapshot_gib_s=0.001))
    buffer = SimDevice(arena, 0, "a").put(noise(4096 * KIB))

    with pytest.raises(StillWorking, match="undone"):
        arena.snapshot("a", deadline_s=0.1)

    assert np.array_equal(buffer.get(), noise(4096 * KIB))


def test_a_job_cannot_allocate_or_free_in_the_middle_of_a_move(folder: Path) -> None:
    arena = Arena.open(folder, SimConfig(memory_mib=8, snapshot_gib_s=0.001))
    device = SimDevice(arena, 0, "a")
    buffer, stop = device.put(noise(4096 * KIB)), threading.Event()

    def snapshot() -> None:
        with pytest.raises(SimError, match="stopped"):
            arena.snapshot("a", stop=stop)

    move = threading.Thread(target=snapshot)
    move.start()
    while arena.memory_of("a").context is not Context.SAVING:
        time.sleep(0.001)

    for change in (lambda: device.empty(1), buffer.free):
        with pytest.raises(NotResident, match="a snapshot of its device state is under way"):
            change()
    with pytest.raises(SimError, match="under way"):
        arena.discard("a")
    stop.set()
    move.join()

    assert np.array_equal(buffer.get(), noise(4096 * KIB))


def test_a_move_can_be_stopped(folder: Path) -> None:
    arena = Arena.open(folder, SimConfig(memory_mib=4, snapshot_gib_s=0.001))
    buffer = SimDevice(arena, 0, "a").put(noise(4096 * KIB))
    stop = threading.Event()
    stop.set()

    with pytest.raises(SimError, match="stopped"):
        arena.snapshot("a", stop=stop)

    assert np.array_equal(buffer.get(), noise(4096 * KIB))


def _hold_memory(folder: Path, ready: object) -> None:
    arena = Arena.open(folder)
    SimDevice(arena, 0, "dead").put(noise(900 * KIB))
    with arena.working("dead", 0, "long"):
        ready.set()  # type: ignore[attr-defined]
        threading.Event().wait()


def test_a_killed_jobs_memory_and_work_are_free_at_once(a: SimDevice, arena: Arena, folder: Path) -> None:
    ready = spawn.Event()
    job = spawn.Process(target=_hold_memory, args=(folder, ready))
    job.start()
    ready.wait()
    assert a.used_bytes == 900 * KIB

    job.kill()
    job.join()

    a.put(noise(1000 * KIB))
    a.run("mine", lambda: None)
    assert arena.memory_of("dead").context is Context.NONE
    assert arena.violations() == []


def _move_slowly(folder: Path, verb: str) -> None:
    arena = Arena.open(folder)
    getattr(arena, verb)("a")


@pytest.mark.parametrize("verb", ["snapshot", "restore"])
def test_a_mover_killed_in_the_middle_changes_nothing(folder: Path, verb: str) -> None:
    arena = Arena.open(folder, SimConfig(memory_mib=8))
    buffers = [SimDevice(arena, 0, "a").put(noise(2048 * KIB + n)) for n in range(3)]
    if verb == "restore":
        arena.snapshot("a")
    before = arena.memory_of("a")
    Arena.open(folder, SimConfig(memory_mib=8, snapshot_gib_s=0.001, restore_gib_s=0.001))
    mover = spawn.Process(target=_move_slowly, args=(folder, verb))

    mover.start()
    while arena.memory_of("a") == before:
        time.sleep(0.001)
    mover.kill()
    mover.join()

    assert arena.memory_of("a") == before
    arena.recover()
    Arena.open(folder, SimConfig(memory_mib=8))
    arena.snapshot("a")
    arena.restore("a")
    for n, buffer in enumerate(buffers):
        assert np.array_equal(buffer.get(), noise(2048 * KIB + n))
    assert [path.name for path in (folder / "host" / "a").iterdir()] == ["saved"]


_BUSY = """
import random, sys
from pathlib import Path
from slurm_interleave.client.sim.arena import Arena
arena = Arena.open(Path(sys.argv[1]))
print("busy", flush=True)
while True:
    numbers = [arena.allocate("dead", 1, random.randrange(1, 200_000)) for _ in range(3)]
    arena.snapshot("dead")
    arena.restore("dead")
    with arena.working("dead", 1, "x"):
        pass
    for number in numbers:
        arena.free(number)
"""


def test_a_process_killed_at_any_instant_leaves_a_table_that_others_can_use(folder: Path) -> None:
    arena = Arena.open(folder, SimConfig(memory_mib=1))
    mine = SimDevice(arena, 1, "alive").put(noise(100 * KIB))

    for delay_ms in (1, 3, 7, 12, 20, 33):
        with subprocess.Popen([sys.executable, "-c", _BUSY, folder], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(delay_ms / 1000)
            process.kill()

        assert arena.memory_of("dead").context is Context.NONE
        assert arena.used_bytes(1) == 100 * KIB
        arena.recover()
        assert not (folder / "host" / "dead").exists()
        arena.snapshot("alive")
        arena.restore("alive")

    assert np.array_equal(mine.get(), noise(100 * KIB))
    assert arena.violations() == []
