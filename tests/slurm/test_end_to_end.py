"""Interleaved jobs on a real Slurm, as their users and administrators see them."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab import Cluster, SubmitRefused
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


def test_two_jobs_of_a_group_take_turns_on_one_device(cluster: Cluster) -> None:
    a, b, end = submit_pair(cluster, "pair")
    assert eventually(lambda: sum(row.switched for row in slices(cluster, a, b)) >= 4)
    end.touch()
    a.completed()
    b.completed()

    rows = slices(cluster, a, b)
    assert {row.state for row in rows} == {"YIELDED"}
    assert len({device for row in rows for device in row.devices}) == 1
    assert never_two_on_a_device(rows)
    changes = sum(one.job_id != two.job_id for one, two in itertools.pairwise(rows))
    assert changes >= 4
    assert not violations(cluster)


def test_a_third_job_of_a_full_group_gets_a_device_of_its_own(cluster: Cluster) -> None:
    a, b, end = submit_pair(cluster, "trio")
    third = submit_member(cluster, "trio", "--turns", "2")
    third.completed()
    end.touch()
    a.completed()
    b.completed()

    rows = slices(cluster, a, b, third)
    assert len({device for row in rows for device in row.devices}) == 2
    assert not violations(cluster)


def test_a_job_over_two_nodes_takes_turns_with_another_on_the_same_devices(cluster: Cluster) -> None:
    a, b, end = submit_pair(cluster, "wide", options=("--nodes=2",))
    end.touch()
    a.completed()
    b.completed()

    rows = slices(cluster, a, b)
    assert {row.nodes for row in rows} == {"n1,n2"}
    assert len({frozenset(row.devices) for row in rows}) == 1
    assert never_two_on_a_device(rows)


RANK = """
import os, time
from slurm_interleave.client import JobRanks
ranks = JobRanks.from_env()
for step in range(3):
    with ranks.turn("train"):
        time.sleep(0.05 * ranks.rank)
        node = os.environ["SLURMD_NODENAME"]
        print("task", ranks.rank, "of", ranks.ranks, "on", node, "step", step, flush=True)
    assert ranks.rank or ranks.interleaver.lease is None
ranks.close()
"""


def test_the_tasks_of_a_step_on_two_nodes_take_their_turns_together(cluster: Cluster) -> None:
    step = ["srun", "--ntasks=4", "--ntasks-per-node=2", sys.executable, "-c", RANK]
    options = ("--nodes=2", "--ntasks-per-node=2")
    jobs = [cluster.sbatch(step, group="tasks", gres="gpu:1", options=options) for _ in "ab"]
    for job in jobs:
        assert cluster.wait(job) == "COMPLETED", cluster.output(job)

    for job in jobs:
        lines = sorted(line for line in cluster.output(job).splitlines() if line.startswith("task"))
        assert lines == [
            f"task {rank} of 4 on n{rank // 2 + 1} step {step}" for rank in range(4) for step in range(3)
        ]
    rows = slices(cluster, *(SubmittedMember(cluster, job, Path()) for job in jobs))
    assert len(rows) == 6
    assert never_two_on_a_device(rows)


def test_the_report_shows_both_jobs(cluster: Cluster) -> None:
    a = submit_member(cluster, "report", "--turns", "1")
    a.completed()

    program = Path(sys.executable).with_name("sinterleave")
    argv = [str(program), "-j", a.job_id, "-n", "-P", "-o", "JobID,Group,Phase,State"]
    lines = cluster.command(*argv).splitlines()

    assert lines == [f"{a.job_id}|report|turn-0|YIELDED", f"{a.job_id}|report|check|YIELDED"]


def test_when_the_holder_is_killed_the_other_job_goes_on(cluster: Cluster) -> None:
    a = submit_member(cluster, "killed", "--turns", "1", "--hold", "300")
    a.until("granted")
    b = submit_member(cluster, "killed", "--turns", "2")
    cluster.wait(b.job_id, "RUNNING")
    cluster.command("scancel", "--signal=KILL", "--full", a.job_id)
    b.completed()

    ended = [row for row in slices(cluster, a) if row.state == "JOB_ENDED"]
    assert len(ended) == 1
    assert not violations(cluster)


def test_when_a_waiting_job_is_cancelled_it_leaves_the_queue(cluster: Cluster) -> None:
    go = cluster.root / "out" / "go-cancelled"
    a = submit_member(cluster, "cancelled", "--turns", "2", "--hold-for", str(go))
    a.until("granted")
    b = submit_member(cluster, "cancelled", "--turns", "1")
    cluster.wait(b.job_id, "RUNNING")
    assert eventually(lambda: "1 ahead" in cluster.output(b.job_id))
    cluster.scancel(b.job_id)
    cluster.wait(b.job_id, "CANCELLED")
    go.touch()
    a.completed()

    assert b.epochs() == []


def test_the_log_of_a_waiting_job_says_what_it_waits_for(cluster: Cluster) -> None:
    go = cluster.root / "out" / "go-says"
    a = submit_member(cluster, "says", "--turns", "1", "--hold-for", str(go))
    a.until("granted")
    b = submit_member(cluster, "says", "--turns", "1")
    assert eventually(lambda: "1 ahead" in cluster.output(b.job_id))
    go.touch()
    a.completed()
    b.completed()

    assert "waiting for the devices of group says: 1 ahead" in cluster.output(b.job_id)
    assert "granted for phase turn-0 after" in cluster.output(b.job_id)


def jobs(cluster: Cluster) -> set[str]:
    return set(cluster.command("squeue", "--noheader", "--format=%i").split())


@pytest.mark.parametrize("name", ["bad name", "x;rm", "-x", "a" * 64, "../etc", "näme"])
def test_a_bad_group_name_is_refused_at_submission(cluster: Cluster, name: str) -> None:
    before = jobs(cluster)

    with pytest.raises(SubmitRefused, match="letters, digits"):
        submit_member(cluster, name)

    assert jobs(cluster) <= before


def test_a_plain_job_does_not_notice_that_we_are_installed(cluster: Cluster) -> None:
    plain = cluster.sbatch(["env"], gres="gpu:1")
    cluster.wait(plain)

    # The lab itself sets INTERLEAVE_CONFIG and its mark for all that it starts.
    ours = ("INTERLEAVE_GROUP", "INTERLEAVE_JOB", "INTERLEAVE_TOKEN", "TIMESLICE_", "SPANK_INTERLEAVE")
    assert not [line for line in cluster.output(plain).splitlines() if line.startswith(ours)]


def test_the_environment_of_an_interleaved_job_serves_both_clients(cluster: Cluster) -> None:
    job = cluster.sbatch(["env"], group="environment", gres="gpu:1")
    cluster.wait(job)

    names = dict(line.partition("=")[::2] for line in cluster.output(job, 500).splitlines())
    assert names["INTERLEAVE_GROUP"] == names["TIMESLICE_GROUP"] == "environment"
    assert names["TIMESLICE_JOB_ID"] == job
    assert names["TIMESLICE_ORCH_ADDR"].startswith("unix:")
    assert names["CUDA_VISIBLE_DEVICES"].startswith("SIM-")


def test_another_user_cannot_read_the_token_of_a_job(cluster: Cluster) -> None:
    go = cluster.out / "go-secret"
    a = submit_member(cluster, "secret", "--turns", "1", "--hold-for", str(go))
    a.until("granted")
    node = slices(cluster, a)[0].nodes
    folder = cluster.root / "run" / node / "jobs" / a.job_id

    reading = subprocess.run(
        ["cat", str(folder / "environment")], user="nobody", capture_output=True, check=False
    )

    assert (folder / "environment").stat().st_uid == os.getuid()
    assert reading.returncode != 0
    go.touch()
    a.completed()


def test_what_a_user_sets_outside_a_job_reaches_his_job(cluster: Cluster) -> None:
    given = {"INTERLEAVE_SIM_DIR": "/some/where", "TIMESLICE_GROUP": "mine"}

    plain = cluster.sbatch(["env"], env=given)
    cluster.wait(plain)

    names = dict(line.partition("=")[::2] for line in cluster.output(plain, 500).splitlines())
    assert {name: names.get(name) for name in given} == given
