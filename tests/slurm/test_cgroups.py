"""Interleaved jobs where Slurm keeps each to its devices and its memory (cgroup v1)."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from lab import Cluster
from tests.slurm.members import eventually, slices, submit_member, submit_pair, violations

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

GREEDY = """
from slurm_interleave.client import Interleaver
with Interleaver.from_env().turn("greedy"):
    print("holds", flush=True)
    kept = bytearray(1)
    while True:
        kept += b"x" * (16 << 20)
"""


def test_each_of_two_jobs_on_one_device_opens_that_device_alone(
    fenced: Cluster, piece: Callable[[str, str], None]
) -> None:
    (node,) = fenced.layout.nodes
    devices = [str(fenced.layout.device(node, index)) for index in range(2)]
    # A device without a driver: what may be opened is missing, what may not is forbidden.
    tries = "; ".join(f"(exec 3<{device}) 2>&1" for device in devices)
    go = fenced.out / "go-fence"
    script = f"{tries}; while ! test -e {go}; do sleep 0.1; done"
    jobs = [fenced.sbatch(["sh", "-c", script], group="fence", gres="gpu:1") for _ in "ab"]
    for job in jobs:
        fenced.wait(job, "RUNNING")
    go.touch()
    for job in jobs:
        fenced.wait(job)

    said = [fenced.output(job).splitlines() for job in jobs]
    forbidden = [["Operation not permitted" in line for line in lines] for lines in said]
    fences = fenced.layout.mode == "lane"
    piece("`ConstrainDevices` keeps a job to the devices of its lane", "yes" if fences else "no lanes")
    assert forbidden == ([[False, True]] * 2 if fences else [[False, False]] * 2)


def test_jobs_with_little_memory_take_turns(fenced: Cluster) -> None:
    # At most two copies of their state, while they make it, and the program.
    a, b, end = submit_pair(fenced, "little", options=("--mem=450",))
    assert eventually(lambda: sum(row.switched for row in slices(fenced, a, b)) >= 3)
    end.touch()
    a.completed()
    b.completed()

    assert not violations(fenced)


def test_a_holder_that_is_killed_for_its_memory_gives_its_device_to_the_next(fenced: Cluster) -> None:
    greedy = fenced.sbatch(
        [sys.executable, "-c", GREEDY], group="greedy", gres="gpu:1", options=["--mem=200", "--no-requeue"]
    )
    fenced.wait(greedy, "RUNNING")
    other = submit_member(fenced, "greedy", "--turns", "1", options=("--mem=450",))

    other.completed()

    assert "holds" in fenced.output(greedy)
    assert fenced.wait(greedy, "OUT_OF_MEMORY", "FAILED") in {"OUT_OF_MEMORY", "FAILED"}
