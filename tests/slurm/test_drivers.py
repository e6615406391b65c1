"""One process of a heterogeneous job takes the turns of both components, on a real Slurm."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lab import Cluster
from lab.processes import wait_until
from tests.slurm.members import SubmittedMember, never_two_on_a_device, slices, status, violations

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(180)]
DRIVER = Path(__file__).with_name("driver.py")
ROOT = Path(__file__).parents[2]
TRAINERS, SAMPLERS = "driven-t", "driven-s"


def submit(cluster: Cluster, name: str) -> tuple[SubmittedMember, SubmittedMember]:
    """Submit such a job; return its components, of which the first one's process notes what it does."""
    answers, notes = cluster.out / f"answers-{name}", cluster.out / f"notes-{name}.jsonl"
    answers.mkdir()
    (answers / "alive").touch()
    script, python = cluster.out / f"{name}.sh", f"env PYTHONPATH={ROOT} {sys.executable} {DRIVER}"
    script.write_text(
        f"#!/bin/sh\nsrun --het-group=1 {python} engine {answers} &\n"
        f"srun --het-group=0 {python} driver {notes} {answers} {TRAINERS} {SAMPLERS}\nwait\n"
    )
    parts = [
        *(f"--interleave-group={TRAINERS}", "--interleave-role=trainer", "--gres=gpu:1"),
        *(":", f"--interleave-group={SAMPLERS}", "--interleave-role=sampler", "--gres=gpu:1"),
    ]
    job = cluster.command("sbatch", "--parsable", f"--output={cluster.out}/%j.out", *parts, str(script))
    first = int(job.strip())
    return SubmittedMember(cluster, str(first), notes), SubmittedMember(cluster, str(first + 1), notes)


def waits(cluster: Cluster, group: str, job: str) -> bool:
    members = status(cluster, group)
    return job in members and members[job].waiting_since > 0


def test_one_driver_holds_both_groups_while_that_of_another_job_waits_for_both(cluster: Cluster) -> None:
    first, first_sampler = submit(cluster, "one")
    first.until("both")
    second, second_sampler = submit(cluster, "two")
    waiting = wait_until(
        lambda: waits(cluster, TRAINERS, second.job_id) and waits(cluster, SAMPLERS, second_sampler.job_id),
        60,
    )
    assert waiting, cluster.logs("interleaved")
    for name in ("one", "two"):
        assert second.events() == []
        (cluster.out / f"answers-{name}" / "go").touch()

    for member in (first, second):
        member.until("finished")

    for member in (first, second):
        last = member.notes()[-1]
        assert (last["job"], last["engine"], last["trainer"]) == (member.job_id, ["True"] * 3, True)
    trainers, samplers = slices(cluster, first, second), slices(cluster, first_sampler, second_sampler)
    assert {row.group for row in trainers} == {TRAINERS}
    assert {row.group for row in samplers} == {SAMPLERS}
    assert len(trainers) == len(samplers) == 6  # both, each, and both again, of two jobs
    for rows in (trainers, samplers):
        assert len({device for row in rows for device in row.devices}) == 1
        assert never_two_on_a_device(rows)
    assert {row.phase for row in (*trainers, *samplers) if row.switched}
    assert not violations(cluster)
