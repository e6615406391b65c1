"""Under a real torchrun: who waits for a turn longer than a process group's limit is not taken for hung."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lab.processes import free_ports
from slurm_interleave.client import testing
from tests.torch.needs import torch

LIMIT_S = 3.0
LONG_S = 200.0  # for what comes at once on a machine that is not busy
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
BETWEEN = f"""{HEAD}
with JobRanks.from_env().turn("train"):
    dist.barrier(group=frameworks)
with Turns.from_env().session("train"):
    dist.barrier(group=frameworks)
{END}"""
# What the documentation warns of: the others wait inside a collective of the framework's own group.
INSIDE = f"""{HEAD}
if dist.get_rank() == 0:
    Interleaver.from_env().acquire("train")
dist.barrier(group=frameworks)
{END}"""


pytestmark = pytest.mark.timeout(900)


def run(script: Path, code: str, *, held: int = 1) -> tuple[int, str]:
    """Run two ranks; *held* others hold the devices in turn, each for longer than the ranks' limit."""
    script.write_text(code)
    port = str(free_ports(1)[0])
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={port}"]
    with testing.orchestrator() as turns, ThreadPoolExecutor() as beside:
        names = [f"other-{number}" for number in range(held)]
        others = [turns.job(name) for name in names]
        others[0].acquire()
        env = {**os.environ, **turns.environ("1"), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        job = subprocess.Popen(
            [*command, str(script)], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for number, other in enumerate(others, 1):
            turns.until_waiting("1", within=LONG_S)
            after = [beside.submit(each.acquire) for each in others[number : number + 1]]
            turns.until_waiting("1", *names[number : number + 1], within=LONG_S)
            time.sleep(2 * LIMIT_S)  # this is what is tested
            other.yield_()
            for acquired in after:
                acquired.result(LONG_S)
        out, _ = job.communicate(timeout=LONG_S)
    return job.returncode, out


def test_ranks_that_wait_for_a_turn_of_either_kind_are_left_alone(tmp_path: Path) -> None:
    assert torch.distributed.is_available()

    status, out = run(tmp_path / "train.py", BETWEEN, held=2)

    assert status == 0, out
    assert sorted(line for line in out.splitlines() if "done" in line) == ["rank 0 is done", "rank 1 is done"]


def test_ranks_that_wait_inside_a_collective_are_not(tmp_path: Path) -> None:
    status, out = run(tmp_path / "train.py", INSIDE)

    assert status != 0
    assert "imed out" in out or "imeout" in out, out
