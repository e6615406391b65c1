"""Interleaved jobs that Slurm takes off their node for a more urgent job."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab import Cluster
from lab.processes import wait_until
from lab.slurm_conf import PARTITION
from tests.slurm.members import SubmittedMember, never_two_on_a_device, slices, submit_member, violations

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(150)]

URGENT = (
    "PreemptType=preempt/partition_prio",
    "PreemptMode=SUSPEND,GANG",
    "PartitionName=urgent Nodes=n1 PriorityTier=10 PreemptMode=OFF",
)
ALL_CPUS = ("--partition=urgent", "--ntasks=32")


@pytest.fixture(scope="module")
def busy() -> Iterator[Cluster]:
    with Cluster.start(nodes=("n1",), plain_nodes=(), slurm=URGENT) as started:
        yield started


def pair(cluster: Cluster, group: str) -> tuple[SubmittedMember, SubmittedMember]:
    """Submit two jobs of many turns and wait until both have had one."""
    a, b = (submit_member(cluster, group, "--turns", "8", "--hold", "0.3") for _ in "ab")
    a.until("yielding")
    b.until("yielding")
    return a, b


def test_jobs_that_slurm_requeues_for_another_come_back_to_a_place(busy: Cluster) -> None:
    busy.command("scontrol", "update", f"PartitionName={PARTITION}", "PreemptMode=REQUEUE")
    a, b = pair(busy, "requeued")

    urgent = busy.sbatch(["sleep", "1"], options=ALL_CPUS)
    busy.wait(urgent)
    for member in (a, b):
        busy.wait(member.job_id, "PENDING")
        busy.begin_soon(member.job_id)
    a.completed()
    b.completed()

    assert {busy.job(member.job_id)["Restarts"] for member in (a, b)} == {"1"}
    assert never_two_on_a_device(slices(busy, a, b))
    assert not violations(busy)


def test_jobs_that_slurm_suspends_for_another_go_on_afterwards(busy: Cluster) -> None:
    busy.command("scontrol", "update", f"PartitionName={PARTITION}", "PreemptMode=SUSPEND")
    a, b = pair(busy, "suspended")

    urgent = busy.sbatch(["sleep", "3"], options=ALL_CPUS)
    assert wait_until(lambda: busy.state(a.job_id) == "SUSPENDED", 30, 0.05)
    busy.wait(urgent)
    a.completed()
    b.completed()

    assert never_two_on_a_device(slices(busy, a, b))
    assert not violations(busy)
