from __future__ import annotations

from pathlib import Path

import pytest

from slurm_interleave.client.sim.arena import Arena
from slurm_interleave.client.sim.settings import SimConfig
from tests.sim.conftest import folder

__all__ = ["folder"]


@pytest.fixture
def arena(folder: Path) -> Arena:
    """Two devices of the demo's size."""
    return Arena.open(folder, SimConfig(devices=2, memory_mib=64))
