"""Under a real torchrun: who waits for a turn longer than a process group's limit is not taken for hung."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.processes import free_ports
from slurm_interleave.client import testing
from tests.torch.needs import torch

LIMIT_S = 3.0
HEAD = f"""
import os
from datetime import timedelta
import torch.distributed as dist
from slurm_interleave.client import Interleaver, JobRanks
from slurm_interleave.client.integrations.turns import Turns
dist.init_process_group("gloo")
dist.barrier()
frameworks = dist.new_group(backend="gloo", timeout=timedelta(seconds={LIMIT_S}))
"""
END = """
print("rank", os.environ["RANK"], "is done", flush=True)
os._exit(0)
"""
TURNS = f"""{HEAD}
with Turns.from_env().session("train"):
    dist.barrier(group=frameworks)
{END}"""
RANKS = f"""{HEAD}
with JobRanks.from_env().turn("train"):
    dist.barrier(group=frameworks)
{END}"""
# What the documentation warns of: the others wait inside a collective of the framework's own group.
INSIDE = f"""{HEAD}
if dist.get_rank() == 0:
    Interleaver.from_env().acquire("train")
dist.barrier(group=frameworks)
{END}"""


def run(script: Path, code: str) -> tuple[int, str]:
    """Run two ranks that wait for the devices for longer than the limit of their group."""
    script.write_text(code)
    port = str(free_ports(1)[0])
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={port}"]
    with testing.orchestrator() as turns:
        other = turns.job("other")
        other.acquire()
        env = {**os.environ, **turns.environ("1"), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        job = subprocess.Popen(
            [*command, str(script)], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        turns.until_waiting("1", within=60)
        time.sleep(2 * LIMIT_S)  # this is what is tested
        other.yield_()
        out, _ = job.communicate(timeout=60)
    return job.returncode, out


@pytest.mark.parametrize("code", [TURNS, RANKS], ids=["Turns", "JobRanks"])
def test_ranks_that_wait_for_a_turn_are_left_alone(tmp_path: Path, code: str) -> None:
    assert torch.distributed.is_available()

    status, out = run(tmp_path / "train.py", code)

    assert status == 0, out
    assert sorted(line for line in out.splitlines() if "done" in line) == ["rank 0 is done", "rank 1 is done"]


def test_ranks_that_wait_inside_a_collective_are_not(tmp_path: Path) -> None:
    status, out = run(tmp_path / "train.py", INSIDE)

    assert status != 0
    assert "imed out" in out or "imeout" in out, out
