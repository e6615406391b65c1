"""What is saved on a disk that fills up, is full, or is not named any more."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from slurm_interleave.client.core.states import Context
from slurm_interleave.client.sim import SimBuffer, SimDevice, SimError
from slurm_interleave.client.sim.arena import Arena
from slurm_interleave.client.sim.settings import SimConfig
from tests.node_agent.test_spill import MIB, VALUES, spill
from tests.small_disk import small_disk

__all__ = ["spill"]


@pytest.fixture
def small_files() -> Iterator[None]:
    """Let no file grow beyond 1 MiB, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def filled(sim: SimConfig, spill: Path) -> tuple[Arena, SimBuffer]:
    arena = Arena.open(sim.directory, sim)
    arena.spill = spill
    return arena, SimDevice(arena, 0, "17").put(VALUES)


def test_a_disk_that_fills_up_meanwhile_fails_the_snapshot_and_gets_back_what_it_gave(
    filled: tuple[Arena, SimBuffer], small_files: None, spill: Path
) -> None:
    arena, buffer = filled

    with pytest.raises(SimError, match=f"17/saved: {2 * MIB} bytes cannot be saved on disk"):
        arena.snapshot("17", spilled=True)

    assert arena.memory_of("17").context is Context.RESIDENT
    assert (spill / "17" / "saved").stat().st_size == 0
    assert np.array_equal(buffer.get(), VALUES)


def test_a_disk_that_is_full_fails_the_snapshot_whole_and_takes_it_when_it_has_room(
    filled: tuple[Arena, SimBuffer], tmp_path: Path
) -> None:
    arena, buffer = filled
    with small_disk(tmp_path / "disk", 4096) as disk:
        arena.spill = disk.seen
        disk.fill(but=MIB)
        with pytest.raises(SimError, match=r"cannot be saved on disk: .*No space left on device"):
            arena.snapshot("17", spilled=True)
        assert arena.memory_of("17").context is Context.RESIDENT
        assert np.array_equal(buffer.get(), VALUES)

        disk.empty()
        arena.snapshot("17", spilled=True)
        arena.restore("17")
        assert np.array_equal(buffer.get(), VALUES)


def test_what_is_on_disk_waits_there_until_the_site_names_the_disk_again(
    filled: tuple[Arena, SimBuffer], spill: Path
) -> None:
    arena, buffer = filled
    arena.snapshot("17", spilled=True)
    arena.spill = None
    with pytest.raises(SimError, match="on disk, but \\[agent\\] spill_dir is not set any more"):
        arena.restore("17")
    arena.spill = spill

    arena.restore("17")

    assert np.array_equal(buffer.get(), VALUES)
