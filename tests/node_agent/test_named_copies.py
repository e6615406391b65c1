"""Named copies of ranges in host memory and on disk, where room runs out or the agent is killed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from slurm_interleave.client.core.states import Context
from slurm_interleave.client.sim import SimBuffer, SimError, ranges
from slurm_interleave.client.sim.arena import Arena
from slurm_interleave.client.sim.ranges import Range
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.node_agent.backends.protocol import Region, Target
from slurm_interleave.node_agent.backends.sim import SimBackend
from tests.node_agent.test_spill import MIB, VALUES, files, spill
from tests.node_agent.test_spill_disk import filled, small_files

__all__ = ["filled", "small_files", "spill"]


@pytest.mark.parametrize("spilled", [False, True])
def test_a_named_copy_that_finds_no_room_leaves_the_older_one_and_nothing_else(
    filled: tuple[Arena, SimBuffer], small_files: None, folder: Path, spilled: bool
) -> None:
    arena, buffer = filled
    part, whole = ([Range(os.getpid(), buffer.address, size)] for size in (MIB, 2 * MIB))
    ranges.save(arena, "17", "x", part, soon(), spilled=spilled)
    before = files(folder)
    buffer.set(np.zeros_like(VALUES))

    with pytest.raises(SimError, match=f"/0: {2 * MIB} bytes cannot be saved there: .*File too large"):
        ranges.save(arena, "17", "x", whole, soon(), spilled=spilled)

    assert files(folder) == before
    ranges.load(arena, "17", "x", part, soon())
    assert np.array_equal(buffer.get()[:MIB], VALUES[:MIB])


async def test_of_named_copies_an_agent_that_was_killed_leaves_the_whole_ones_alone(
    filled: tuple[Arena, SimBuffer], sim: SimConfig, spill: Path
) -> None:
    arena, buffer = filled
    part = [Range(os.getpid(), buffer.address, MIB)]
    for name, spilled in (("memory", False), ("disk", True)):
        ranges.save(arena, "17", name, part, soon(), spilled=spilled)
    before = copies(arena, spill)
    for copy in before:
        copy.with_suffix(".new").mkdir()

    await SimBackend("n1", sim, spill).recover(["17"])

    assert (len(before), copies(arena, spill)) == (2, before)
    assert before[1].stat().st_mode & 0o077 == 0  # all that a job has on its devices may be in it


@pytest.mark.parametrize(
    ("verb", "why"),
    [
        ("save_regions", "stopped"),
        ("load_regions", "stopped"),
        ("save_regions", "the time was up"),
        ("load_regions", "the time was up"),
        ("load_regions", "checksum"),
    ],
)
async def test_a_named_copy_that_fails_leaves_the_job_on_its_devices(
    filled: tuple[Arena, SimBuffer], sim: SimConfig, verb: str, why: str
) -> None:
    arena, buffer = filled
    backend, regions = SimBackend("n1", sim), [Region(os.getpid(), buffer.address, MIB)]
    target = Target("17", (0,), -1 if why == "the time was up" else 10)
    ranges.save(arena, "17", "x", [Range(os.getpid(), buffer.address, MIB)], soon())
    if why == "stopped":
        target.stop.set()
    if why == "checksum":
        [file] = arena.directory.glob("regions/17/*/0")
        file.write_bytes(bytes(MIB))

    outcome = await getattr(backend, verb)(target, "x", regions)

    assert (outcome.context, outcome.moved) == (Context.RESIDENT, 0)
    assert why in outcome.error


def copies(arena: Arena, spill: Path) -> list[Path]:
    return [*arena.directory.glob("regions/17/*"), *spill.glob("17/copies/*")]


def soon() -> float:
    return time.monotonic() + 10
