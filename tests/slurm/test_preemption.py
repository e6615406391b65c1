"""Interleaved jobs that Slurm takes off their node for a more urgent job."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab import Cluster
from lab.slurm_conf import PARTITION
from tests.slurm.members import never_two_on_a_device, slices, submit_pair, violations

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

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


def test_jobs_that_slurm_requeues_for_another_come_back_to_a_place(busy: Cluster) -> None:
    busy.command("scontrol", "update", f"PartitionName={PARTITION}", "PreemptMode=REQUEUE")
    a, b, end = submit_pair(busy, "requeued")

    urgent = busy.sbatch(["sleep", "1"], options=ALL_CPUS)
    busy.wait(urgent)
    end.touch()
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
    a, b, end = submit_pair(busy, "suspended")
    go = busy.out / "go-urgent"

    urgent = busy.sbatch(["sh", "-c", f"while ! test -e {go}; do sleep 0.1; done"], options=ALL_CPUS)
    for member in (a, b):
        busy.wait(member.job_id, "SUSPENDED")
    go.touch()
    busy.wait(urgent)
    had = len(a.epochs())
    a.until("granted", had + 2)
    end.touch()
    a.completed()
    b.completed()

    assert never_two_on_a_device(slices(busy, a, b))
    assert not violations(busy)
