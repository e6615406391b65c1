"""Two ranks of the example with Accelerate: one of them acquires, and each step is a turn of both."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import LocalLab
from lab.processes import free_ports
from tests.frameworks.needs import needs
from tests.frameworks.test_lightning import phases

EXAMPLE = Path(__file__).parents[2] / "examples" / "frameworks" / "accelerate_loop.py"
LIMIT_S = 100

pytestmark = [needs("torch", "accelerate"), pytest.mark.timeout(2 * LIMIT_S)]


@pytest.fixture
def lab() -> Iterator[LocalLab]:
    with LocalLab.start(devices=1) as started:
        yield started


def test_ranks_take_their_turns_together(lab: LocalLab) -> None:
    out = lab.root / "out" / "result"
    launch = ["-W", "ignore", "-m", "torch.distributed.run", "--nproc-per-node=2"]
    env = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "ACCELERATE_USE_CPU": "true"}
    command = [sys.executable, *launch, f"--master-port={free_ports(1)[0]}", str(EXAMPLE), str(out)]

    job = lab.submit(command, group="acc", env=env)
    assert lab.wait(job, LIMIT_S) == 0, lab.output(job)

    result = json.loads(out.read_text())
    assert (result["ranks"], len(result["losses"])) == (2, 4)
    assert phases(lab, job) == ["load", "step", "step", "step"]
