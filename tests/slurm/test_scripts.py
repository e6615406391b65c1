"""What job scripts do to their environment and to themselves, and what their users ask of Slurm."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from lab import Cluster
from tests.cli.test_run_signals import COMMAND, PROGRAM
from tests.slurm.members import SCRIPT, SubmittedMember, eventually, slices, submit_member, violations

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

WORKS = """
import pathlib, sys
import numpy as np
from slurm_interleave.client import Interleaver
from slurm_interleave.client.sim import SimDevice
assert not Interleaver.from_env().active
device = SimDevice.open()
buffer = device.put(np.zeros(10))
while not pathlib.Path(sys.argv[1]).exists():
    device.run("hidden", lambda values: None, buffer, seconds=0.05)
"""
# Of all that a job was given it keeps where its simulated device is.
UNSET = "for name in $(env | sed -n '/SIM_DIR/d;s/^\\(INTERLEAVE_[A-Z_]*\\)=.*/\\1/p'); do unset $name; done"
HOLDS_UNTIL_REQUEUED = """
import os, time
from slurm_interleave.client import Interleaver
with Interleaver.from_env().turn("first"):
    print("holds", flush=True)
    while "SLURM_RESTART_COUNT" not in os.environ:
        time.sleep(0.05)
"""


def variables(text: str) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in text.splitlines())


def test_a_script_that_unsets_our_variables_is_seen_to_work_and_its_steps_take_turns(
    cluster: Cluster,
) -> None:
    seen, notes = cluster.out / "go-unset", cluster.out / "notes-unset"
    hidden = shlex.join([sys.executable, "-c", WORKS, str(seen)])
    step = shlex.join(["srun", sys.executable, str(SCRIPT), str(notes), "--turns", "2"])
    job = cluster.sbatch(["bash", "-c", f"{UNSET}; {hidden} && {step}"], group="unset", gres="gpu:1")
    trespass = f'event=trespass.seen member="job {job} of group unset"'
    assert eventually(lambda: trespass in cluster.logs("interleaved", 10000)), cluster.logs("interleaved")

    seen.touch()
    SubmittedMember(cluster, job, notes).completed()

    assert not violations(cluster)


def test_a_job_that_takes_no_environment_along_has_ours_and_its_steps_too(cluster: Cluster) -> None:
    told = "/usr/bin/env; echo; /usr/bin/srun /usr/bin/env"
    # Slurm starts a login shell first, which may take a minute; this user has none. 26.05 then holds the job.
    user = "nobody" if cluster.layout.version < (26, 5) else None
    command = ["/bin/sh", "-c", told]
    job = cluster.sbatch(command, group="bare", gres="gpu:1", options=["--export=NONE"], user=user)

    cluster.wait(job)

    batch, _, step = cluster.output(job, 1000).partition("\n\n")
    for seen in (variables(batch), variables(step)):
        assert seen["INTERLEAVE_GROUP"] == "bare"
        assert seen["INTERLEAVE_TOKEN"]
        assert seen["CUDA_VISIBLE_DEVICES"].startswith("SIM-n")


def test_a_holder_that_requeues_itself_gives_its_device_to_the_next_and_comes_back(cluster: Cluster) -> None:
    go = cluster.out / "go-requeue"
    holds = shlex.join([sys.executable, "-c", HOLDS_UNTIL_REQUEUED])
    itself = f"while ! test -e {go}; do sleep 0.1; done; scontrol requeue $SLURM_JOB_ID"
    script = f'test -n "$SLURM_RESTART_COUNT" || ({itself}) & exec {holds}'
    options = ("--requeue", "--open-mode=append")
    job = cluster.sbatch(["sh", "-c", script], group="itself", gres="gpu:1", options=options)
    assert eventually(lambda: "holds" in cluster.output(job))
    other = submit_member(cluster, "itself", "--turns", "1")
    assert eventually(lambda: "1 ahead" in cluster.output(other.job_id))

    go.touch()
    other.completed()
    cluster.wait(job, "PENDING")
    cluster.begin_soon(job)
    cluster.wait(job)

    assert cluster.job(job)["Restarts"] == "1"
    rows = slices(cluster, SubmittedMember(cluster, job, Path()))
    assert [row.state for row in rows] == ["JOB_ENDED", "YIELDED"]


def test_the_report_finds_the_tasks_of_an_array(cluster: Cluster) -> None:
    turn = "from slurm_interleave.client import Interleaver; Interleaver.from_env().acquire('turn')"
    array = cluster.sbatch([sys.executable, "-c", turn], group="tasks", gres="gpu:1", options=["--array=1-3"])
    assert eventually(lambda: not cluster.command("squeue", "-hj", array, "--states=PD,R,CG").strip())
    shown = [cluster.job(f"{array}_{task}")["JobId"] for task in (1, 2, 3)]

    def reported(jobs: str) -> list[str]:
        program = str(Path(sys.executable).with_name("sinterleave"))
        return cluster.command(program, "-j", jobs, "-n", "-P", "-X", "-o", "JobID").split()

    assert reported(f"{array}_2") == [shown[1]]
    assert sorted(reported(f"{array}_[1,3]")) == sorted([shown[0], shown[2]])
    assert len(set(shown)) == 3


@pytest.mark.parametrize(
    ("step", "options"),
    [(["srun"], []), ([], ["--full"]), ([], ["--batch"])],
    ids=["step", "all", "script-alone"],
)
def test_a_command_under_run_gets_each_signal_of_scancel_once(
    cluster: Cluster, step: list[str], options: list[str]
) -> None:
    command = [sys.executable, "-c", COMMAND, "2", "SIGUSR1", "SIGINT"]
    job = cluster.sbatch([*step, str(PROGRAM), "run", *command])
    for number, said in (("USR1", ["ready"]), ("INT", ["ready", "SIGUSR1"])):
        assert eventually(lambda said=said: cluster.output(job).splitlines() == said), cluster.output(job)
        cluster.command("scancel", *options, "-s", number, job)

    assert eventually(lambda: cluster.job(job)["JobState"] == "FAILED")
    assert cluster.output(job).splitlines()[:3] == ["ready", "SIGUSR1", "SIGINT"]
    assert cluster.job(job)["ExitCode"].startswith("7:")
