from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest

from slurm_interleave.client.sim import ChecksumMismatch, SimError, StillWorking, checksum, transfer
from slurm_interleave.client.sim.checksum import PART, Checksum

SIZE = 5 * PART + 12_345


@pytest.fixture
def data() -> memoryview:
    return memoryview(np.random.default_rng(7).integers(0, 256, SIZE, dtype=np.uint8))


def pace(stop: threading.Event | None = None, seconds: float = 60) -> transfer.Pace:
    return transfer.Pace(0, time.monotonic() + seconds, stop)


@pytest.mark.parametrize("processors", [1, 2, 64])
def test_a_copy_and_its_checksum_are_the_same_on_any_number_of_processors(
    data: memoryview, processors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(processors)))
    copy, back = memoryview(bytearray(SIZE)), memoryview(bytearray(SIZE))

    seen = transfer.copy(data, copy, 0, pace())
    transfer.copy_back(copy, back, 0, seen, pace())

    assert seen == checksum.of(data)
    assert copy == data == back


@pytest.mark.parametrize("place", [0, 2 * PART - 1, SIZE - 1])
def test_a_changed_byte_in_any_part_is_found_on_the_way_back(data: memoryview, place: int) -> None:
    copy = memoryview(bytearray(SIZE))
    seen = transfer.copy(data, copy, 0, pace())
    copy[place] ^= 1

    with pytest.raises(ChecksumMismatch, match=f"a saved buffer of {SIZE} bytes"):
        transfer.copy_back(copy, memoryview(bytearray(SIZE)), 0, seen, pace())


def test_what_one_thread_raises_ends_the_copy_in_all_of_them(
    data: memoryview, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1})
    take = Checksum.take

    def breaks(self: Checksum, part: int, source: memoryview, to: memoryview | None = None) -> int:
        if part == 1:
            raise IndexError("a broken device")
        return take(self, part, source, to)

    monkeypatch.setattr(Checksum, "take", breaks)
    before = threading.active_count()

    with pytest.raises(IndexError, match="a broken device"):
        transfer.copy(data, memoryview(bytearray(SIZE)), 0, pace())

    assert threading.active_count() == before


def test_a_copy_ends_with_its_time_and_with_its_job(data: memoryview) -> None:
    stop = threading.Event()
    stop.set()

    with pytest.raises(SimError, match="stopped; undone"):
        transfer.copy(data, memoryview(bytearray(SIZE)), 0, pace(stop))
    with pytest.raises(StillWorking, match="when the time was up"):
        transfer.copy(data, memoryview(bytearray(SIZE)), 0, pace(seconds=-1))
