from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_interleave.client.sim import SimDevice
from slurm_interleave.client.sim.arena import Arena
from slurm_interleave.client.sim.settings import SimConfig


@pytest.fixture
def folder() -> Iterator[Path]:
    base = Path("/dev/shm")
    path = Path(tempfile.mkdtemp(prefix="interleave-test-", dir=base if base.is_dir() else None))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def arena(folder: Path) -> Arena:
    return Arena.open(folder, SimConfig(devices=2, memory_mib=1))


@pytest.fixture
def a(arena: Arena) -> SimDevice:
    return SimDevice(arena, 0, "a")


@pytest.fixture
def b(arena: Arena) -> SimDevice:
    return SimDevice(arena, 0, "b")
