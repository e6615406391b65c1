"""Placement on a real Slurm: job arrays, heterogeneous jobs, features, accounts, groups that are chosen."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

import pytest

from lab import Cluster
from slurm_interleave.orchestrator.placement.slurm import SlurmCommands
from tests.slurm.members import (
    SCRIPT,
    SubmittedMember,
    alarms,
    eventually,
    never_two_on_a_device,
    slices,
    violations,
)

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300), pytest.mark.usefixtures("nothing_left")]


def tasks(cluster: Cluster, array: str) -> dict[str, str]:
    """Return the state of each task that is not over, by its number."""
    lines = cluster.command("squeue", "--noheader", "--array", f"--jobs={array}", "--format=%K %t %r")
    rows = [line.split() for line in lines.splitlines()]
    return {row[0]: " ".join(row[1:]) for row in rows if row[1] in ("PD", "R")}


def test_an_array_with_more_tasks_than_shares_runs_as_far_as_there_is_room(cluster: Cluster) -> None:
    go, before = cluster.out / "go-array", alarms(cluster)
    told = "echo $SLURM_ARRAY_TASK_ID $INTERLEAVE_JOB_ID $SLURM_JOB_ID $INTERLEAVE_GROUP >>told"
    wait = f"while ! test -e {go}; do sleep 0.1; done"
    # Two nodes of two devices, which two jobs share each.
    array = cluster.sbatch(
        ["sh", "-c", f"{told}; {wait}"], group="array", gres="gpu:1", options=["--array=0-9"]
    )
    running = eventually(lambda: list(tasks(cluster, array).values()).count("R None") == 8)
    assert running, f"{tasks(cluster, array)}\n{cluster.logs('interleaved')}\n{cluster.logs('slurmctld')}"
    rest = [state for state in tasks(cluster, array).values() if state != "R None"]

    go.touch()
    assert eventually(lambda: not tasks(cluster, array)), cluster.logs("interleaved")

    assert rest == ["PD JobHeldUser"] * 2
    lines = [line.split() for line in (cluster.out / "told").read_text().splitlines()]
    assert sorted(int(line[0]) for line in lines) == list(range(10))
    assert all(line[1:] == [line[2], line[2], "array"] for line in lines)
    assert len({line[2] for line in lines}) == 10
    assert alarms(cluster) == before


def test_an_arrays_own_limit_counts_for_its_places(cluster: Cluster) -> None:
    wait = f"while ! test -e {cluster.out}/go-limit; do sleep 0.1; done"
    array = cluster.sbatch(["sh", "-c", wait], group="limit", gres="gpu:1", options=["--array=1-3%1"])
    assert eventually(lambda: "R None" in tasks(cluster, array).values())
    # One that comes later has its place: the helper has looked at the array again.
    later = cluster.sbatch(["true"], group="limit-later", gres="gpu:1")
    cluster.wait(later)

    assert sorted(tasks(cluster, array).values()) == ["PD JobHeldUser", "PD JobHeldUser", "R None"]


def submit_parts(cluster: Cluster) -> list[SubmittedMember]:
    """Submit a job of a trainer and a sampler in groups of their own, which take turns side by side."""
    script = cluster.out / "parts.sh"
    member = f"exec {sys.executable} {SCRIPT} {cluster.out}/parts-$INTERLEAVE_JOB_ID --turns 3"
    script.write_text(f"#!/bin/sh\nsrun --het-group=0,1 sh -c '{member}'\n")
    parts = [
        *("--interleave-group=het-t", "--interleave-role=trainer", "--gres=gpu:1", "--nodelist=n2"),
        *(":", "--interleave-group=het-s", "--interleave-role=sampler", "--gres=gpu:1"),
    ]
    job = cluster.command(
        "sbatch", "--parsable", f"--output={cluster.out}/%j.out", *parts, str(script)
    ).strip()
    return [
        SubmittedMember(cluster, job_id, Path(cluster.out, f"parts-{job_id}"))
        for job_id in (job, str(int(job) + 1))
    ]


def test_trainer_and_sampler_of_one_job_take_turns_each_in_a_group_of_its_own(cluster: Cluster) -> None:
    first, second = submit_parts(cluster), submit_parts(cluster)
    for member in (*first, *second):
        member.until("finished")

    trainers, samplers = slices(cluster, first[0], second[0]), slices(cluster, first[1], second[1])
    assert {(row.group, row.role) for row in trainers} == {("het-t", "trainer")}
    assert {(row.group, row.role) for row in samplers} == {("het-s", "sampler")}
    assert len({device for row in trainers for device in row.devices}) == 1
    assert len({row.nodes for row in (*trainers, *samplers)}) == 2
    assert never_two_on_a_device(trainers)
    assert never_two_on_a_device(samplers)
    assert not violations(cluster)


def test_a_job_of_a_hidden_partition_is_listed_and_only_slurms_own_word_says_that_it_has_no_run(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
    monkeypatch.setenv("SQUEUE_STATES", "SUSPENDED")
    slurm = SlurmCommands(timeout_s=60)
    job, waits = cluster.sbatch(["sleep", "300"]), cluster.sbatch(["true"], options=["--hold"])
    cluster.wait(job, "RUNNING")
    partition = f"PartitionName={cluster.job(job)['Partition']}"
    cluster.command("scontrol", "update", partition, "Hidden=YES")
    try:
        listed = {one.job_id for one in asyncio.run(slurm.jobs())}
        runs = {name: asyncio.run(slurm.runs(name)) for name in (job, waits, "99999")}
    finally:
        cluster.command("scontrol", "update", partition, "Hidden=NO")
        cluster.scancel(job, waits)
    cluster.wait(job, "CANCELLED")

    assert {job, waits} <= listed
    assert runs == {job: True, waits: False, "99999": False}
    assert not asyncio.run(slurm.runs(job))


def test_what_a_job_has_left_by_its_time_limit_is_read_of_each_release(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
    slurm = SlurmCommands(timeout_s=60)
    runs = cluster.sbatch(["sleep", "300"], options=["--time=1-00:00:00"])
    waits = cluster.sbatch(["true"], options=["--hold", "--time=90"])
    endless = cluster.sbatch(["true"], options=["--hold", "--time=UNLIMITED"])
    cluster.wait(runs, "RUNNING")
    try:
        jobs = {name: asyncio.run(slurm.job(name)) for name in (runs, waits, endless)}
    finally:
        cluster.scancel(runs, waits, endless)

    soon, later = time.time() + 60, time.time() + 36_000
    left = {name: [job.hours_left(soon), job.hours_left(later)] for name, job in jobs.items()}
    assert left == {runs: [24, 14], waits: [2, 2], endless: [0, 0]}


def test_a_group_takes_no_jobs_of_another_account_while_it_has_members(cluster: Cluster) -> None:
    first = cluster.sbatch(["sleep", "300"], group="owned", gres="gpu:1", options=["--account=physics"])
    cluster.wait(first, "RUNNING")
    other = cluster.sbatch(["true"], group="owned", gres="gpu:1", options=["--account=art"])

    assert eventually(lambda: "why=group" in cluster.job(other)["AdminComment"])
    assert cluster.held(other)
    cluster.scancel(first)
    cluster.wait(other)


def test_a_job_goes_where_its_features_and_its_type_of_gpu_are_or_says_that_they_are_nowhere(
    cluster: Cluster,
) -> None:
    *_, last = cluster.layout.nodes
    both = ("AvailableFeatures=sim,h200", "ActiveFeatures=sim,h200")
    cluster.command("scontrol", "update", f"NodeName={last}", *both)
    named = cluster.sbatch(["true"], group="typed", gres="gpu:h200:1")
    featured = cluster.sbatch(["true"], group="featured", gres="gpu:1", options=["--constraint=h200"])
    nowhere = cluster.sbatch(["true"], group="nowhere", gres="gpu:b300:1")

    for job in (named, featured):
        cluster.wait(job)
        assert cluster.job(job)["NodeList"] == last
    why = "why=no node has GPUs of type b300"
    assert eventually(lambda: why in cluster.command("scontrol", "show", "job", nowhere))
    assert cluster.held(nowhere)


def declare(cluster: Cluster, **profiles: tuple[float, float]) -> None:
    """Declare workloads, each by its period and for how long of it the devices are held, until they count."""
    listed = [{"name": name, "period_s": p, "held_s": b} for name, (p, b) in profiles.items()]
    file = cluster.out / "declared.json"
    file.write_text(json.dumps({"profiles": listed}))
    program = str(Path(sys.executable).with_name("interleave"))
    cluster.command(program, "profile", "import", str(file), "--config", str(cluster.config))
    cluster.restart("interleaved")


def test_jobs_that_ask_for_any_group_come_together_where_nobody_loses_and_others_say_why(
    cluster: Cluster,
) -> None:
    declare(cluster, half=(100, 55), light=(100, 20))
    go = cluster.out / "go-auto"
    told = "echo $INTERLEAVE_GROUP $CUDA_VISIBLE_DEVICES; srun sh -c 'echo $INTERLEAVE_GROUP'"
    script = ["sh", "-c", f"{told}; while ! test -e {go}; do sleep 0.1; done"]

    def submit(*options: str) -> str:
        return cluster.sbatch(script, group="auto", gres="gpu:1", options=options)

    # Two nodes of two devices: the first four have a device of their own, being no company for each other.
    first = [submit(f"--interleave-profile={name}") for name in ("half", "half", "half")]
    new = submit()
    for job in (*first, new):
        cluster.wait(job, "RUNNING")
    strict = submit("--interleave-profile=light", "--interleave-max-slowdown=0")
    lost = submit("--interleave-profile=half")
    fits = submit("--interleave-profile=light")
    cluster.wait(fits, "RUNNING")

    def why(job: str) -> str:
        shown = cluster.command("scontrol", "show", "job", job)
        return shown.partition(";why=")[2].partition(";state")[0]

    assert eventually(lambda: why(lost) and why(strict)), cluster.logs("interleaved")
    assert "together they need their devices for 110% of the time" in why(lost) or "times as long" in why(
        lost
    )
    assert f"job {strict} would take" in why(strict)
    go.touch()
    for job in (*first, new, strict, lost, fits):
        cluster.wait(job)
    outputs = {job: cluster.output(job).split() for job in (*first, new, fits)}
    assert [outputs[job][0] for job in (*first, new)] == [f"auto-{job}" for job in (*first, new)]
    assert outputs[fits] in [outputs[job] for job in first]
    assert all(output[0] == output[2] for output in outputs.values())
