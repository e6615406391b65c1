"""Daemons that are killed, or away when a job needs them, on a real Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import Cluster
from lab.processes import wait_until
from tests.slurm.members import (
    SubmittedMember,
    eventually,
    never_two_on_a_device,
    slices,
    submit_member,
    submit_pair,
    violations,
)

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]


def go_on(end: Path, *members: SubmittedMember) -> None:
    """Wait until each has had two turns more, and then for the good ends of all."""
    had = {member.job_id: len(member.epochs()) for member in members}
    for member in members:
        member.until("granted", had[member.job_id] + 2)
    end.touch()
    for member in members:
        member.completed()


def test_jobs_ride_out_a_killed_orchestrator(cluster: Cluster) -> None:
    a, b, end = submit_pair(cluster, "headless")
    cluster.kill9("interleaved")
    cluster.start_again("interleaved")
    go_on(end, a, b)

    rows = slices(cluster, a, b)
    epochs = a.epochs() + b.epochs()
    assert len(set(epochs)) == len(epochs)
    assert never_two_on_a_device(rows)
    assert not violations(cluster)


@pytest.mark.parametrize("away_s", [0.0, 3.0])
def test_jobs_ride_out_a_killed_agent(cluster: Cluster, away_s: float) -> None:
    a, b, end = submit_pair(cluster, "agentless")
    node = slices(cluster, a)[0].nodes
    cluster.kill9(f"agent-{node}")
    assert not wait_until(lambda: False, away_s, 0.5)
    cluster.start_again(f"agent-{node}")
    go_on(end, a, b)

    assert never_two_on_a_device(slices(cluster, a, b))
    assert not violations(cluster)


def test_with_the_orchestrator_down_the_job_starts_and_its_acquire_waits_and_says_so(
    cluster: Cluster,
) -> None:
    go = cluster.root / "out" / "go-down"
    a = submit_member(cluster, "down", "--turns", "1", "--wait-for", str(go))
    cluster.wait(a.job_id, "RUNNING")
    cluster.kill9("interleaved")
    try:
        go.touch()
        assert eventually(lambda: "cannot be reached" in cluster.output(a.job_id))
    finally:
        cluster.start_again("interleaved")
    a.completed()


def test_with_the_orchestrator_down_at_its_start_a_placed_job_is_registered_later(cluster: Cluster) -> None:
    a = submit_member(cluster, "late", "--turns", "1", options=("--begin=now+1hour",))
    assert eventually(lambda: "state=released" in cluster.job(a.job_id).get("AdminComment", ""))
    assert eventually(lambda: not cluster.held(a.job_id))
    cluster.kill9("interleaved")
    try:
        cluster.begin_soon(a.job_id)
        cluster.wait(a.job_id, "RUNNING")
        assert eventually(lambda: "cannot be reached" in cluster.output(a.job_id))
    finally:
        cluster.start_again("interleaved")
    a.completed()


def test_with_the_agent_down_at_its_start_a_job_is_told_that_it_is_not_registered(cluster: Cluster) -> None:
    a = submit_member(cluster, "unregistered", "--turns", "1", options=("--begin=now+1hour", "--nodelist=n1"))
    assert eventually(lambda: not cluster.held(a.job_id))
    cluster.kill9("agent-n1")
    try:
        cluster.begin_soon(a.job_id)
        a.until("NotRegistered")
    finally:
        cluster.start_again("agent-n1")

    assert "not registered on node n1" in a.notes()[-1]["text"]
    assert set(cluster.command("sinfo", "--noheader", "--nodes=n1", "--format=%T").split()) & {
        "idle",
        "mixed",
    }


def test_a_holder_that_was_cancelled_while_nobody_could_hear_it_holds_no_more(cluster: Cluster) -> None:
    a = submit_member(cluster, "unheard", "--turns", "1", "--hold", "300", options=("--nodelist=n1",))
    a.until("granted")
    cluster.kill9("agent-n1")
    try:
        cluster.kill9("interleaved")
        try:
            cluster.scancel(a.job_id)
            cluster.wait(a.job_id, "CANCELLED")
        finally:
            cluster.start_again("interleaved")
        assert wait_until(lambda: {row.state for row in slices(cluster, a)} == {"JOB_ENDED"}, 30)
    finally:
        cluster.start_again("agent-n1")
