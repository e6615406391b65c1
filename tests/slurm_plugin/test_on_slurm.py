"""The plugin and the rules on a real Slurm: who is interleaved, who is not, and what each sees."""

from __future__ import annotations

import pytest

from lab import Cluster, SubmitRefused
from lab.processes import LabError
from tests.slurm_plugin.jobs import CHOSEN, TOKEN, group_in, script, variables

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300), pytest.mark.usefixtures("nothing_left")]


@pytest.mark.parametrize(
    "gpus", ["--gres=gpu:1", "--gpus=1", "--gpus-per-node=sim:1", "--ntasks=1 --gpus-per-task=1"]
)
def test_a_plain_srun_in_the_job_sees_what_the_job_sees(cluster: Cluster, gpus: str) -> None:
    job = cluster.sbatch(script("env; echo; srun env"), group="steps", options=gpus.split())

    cluster.wait(job)

    batch, _, step = cluster.output(job, 1000).partition("\n\n")
    ours = {k: v for k, v in variables(batch).items() if k.startswith(("INTERLEAVE_", "TIMESLICE_", "CUDA_"))}
    assert ours[TOKEN]
    assert ours["INTERLEAVE_GROUP"] == "steps"
    assert ours.items() <= variables(step).items()


def test_a_step_of_one_task_on_each_node_sees_all_devices_of_the_job(cluster: Cluster) -> None:
    step = "srun --nodes=1 --ntasks=1 --ntasks-per-node=1 env"  # as Ray starts
    job = cluster.sbatch(script(step), group="ray", options=["--ntasks=2", "--gpus-per-task=1"])

    cluster.wait(job)

    seen = variables(cluster.output(job, 1000))
    assert len(seen["CUDA_VISIBLE_DEVICES"].split(",")) == 2
    assert seen["SLURM_GPUS_ON_NODE"] == "2"


def test_a_job_that_asks_by_its_comment_is_in_the_group(cluster: Cluster) -> None:
    job = cluster.sbatch(["env"], gres="gpu:1", options=["--comment=run 7, interleave=said"])

    cluster.wait(job)

    seen = variables(cluster.output(job, 1000))
    assert (seen["INTERLEAVE_GROUP"], bool(seen[TOKEN])) == ("said", True)


def test_a_job_submitted_by_a_job_is_in_no_group_and_gets_nothing_of_the_outer_one(cluster: Cluster) -> None:
    file = cluster.out / "inner"
    inner = f"sbatch --parsable --wait --output={file} --wrap=env >/dev/null; cat {file}"
    env = {"SBATCH_INTERLEAVE_GROUP": "outer", "SBATCH_INTERLEAVE_BACKEND": "sim"}
    job = cluster.sbatch(script(inner), gres="gpu:1", env=env, options=CHOSEN[::2])

    cluster.wait(job)

    seen = variables(cluster.output(job, 1000))
    assert seen["SLURM_JOB_PARTITION"] == "batch"
    left = [k for k in seen if "INTERLEAVE" in k.upper() or k.startswith(("TIMESLICE_", "CUDA_"))]
    # The lab's own, and the one address that all jobs share.
    assert sorted(left) == ["INTERLEAVE_CONFIG", "INTERLEAVE_LAB", "INTERLEAVE_ORCHESTRATOR"]
    assert group_in(cluster.job(job)["AdminComment"]) == "outer"


def test_a_job_that_hides_its_id_still_hands_nothing_to_one_that_it_submits(cluster: Cluster) -> None:
    file = cluster.out / "hidden"
    inner = (
        f"unset INTERLEAVE_JOB_ID; sbatch --parsable --wait --output={file} --wrap=env >/dev/null; cat {file}"
    )
    job = cluster.sbatch(script(inner), group="outer", gres="gpu:1")

    cluster.wait(job)

    seen = variables(cluster.output(job, 1000))
    left = [k for k in seen if "INTERLEAVE" in k.upper() or k.startswith(("TIMESLICE_", "CUDA_"))]
    assert sorted(left) == ["INTERLEAVE_CONFIG", "INTERLEAVE_LAB", "INTERLEAVE_ORCHESTRATOR"]


def test_a_job_that_no_prolog_registered_is_registered_when_it_starts(cluster: Cluster) -> None:
    prolog = cluster.root / "etc" / "hooks" / "prolog.sh"
    text = prolog.read_text()
    prolog.write_text("#!/bin/sh\nexit 0\n")  # as 22.05 may do with a requeued job
    try:
        job = cluster.sbatch(script("env; echo; srun env"), group="late", gres="gpu:1")
        cluster.wait(job)
    finally:
        prolog.write_text(text)

    batch, _, step = cluster.output(job, 1000).partition("\n\n")
    seen = variables(batch)
    assert (seen["INTERLEAVE_GROUP"], bool(seen[TOKEN])) == ("late", True)
    assert variables(step)[TOKEN] == seen[TOKEN]


def test_a_job_that_is_to_be_held_is_refused_with_what_to_use_instead(cluster: Cluster) -> None:
    with pytest.raises(SubmitRefused, match="use --begin=TIME"):
        cluster.sbatch(["true"], group="held", gres="gpu:1", options=["--hold"])


def test_a_job_submitted_by_a_job_may_have_a_group_of_its_own(cluster: Cluster) -> None:
    inner = "sbatch --parsable --interleave-group=inner --gres=gpu:1 --output=/dev/null --wrap=true"
    job = cluster.sbatch(script(inner), group="outer", gres="gpu:1")

    cluster.wait(job)

    assert group_in(cluster.job(cluster.output(job).strip())["AdminComment"]) == "inner"


def test_srun_outside_a_job_runs_in_the_group(cluster: Cluster) -> None:
    seen = variables(
        cluster.command(
            "srun", "--interleave-group=direct", "--interleave-gpus=1", "--interleave-max-wait=2", "env"
        )
    )

    assert (seen["INTERLEAVE_GROUP"], bool(seen[TOKEN])) == ("direct", True)
    assert seen["INTERLEAVE_MAX_WAIT"] == "120"


def test_srun_outside_a_job_takes_its_group_from_the_variable(cluster: Cluster) -> None:
    env = ("env", "SRUN_INTERLEAVE_GROUP=variable", "SRUN_INTERLEAVE_ROLE=judge")

    seen = variables(cluster.command(*env, "srun", "--interleave-gpus=1", "env"))

    assert (seen["INTERLEAVE_GROUP"], seen["INTERLEAVE_ROLE"], bool(seen[TOKEN])) == (
        "variable",
        "judge",
        True,
    )


def test_srun_outside_a_job_says_how_to_ask_for_gpus(cluster: Cluster) -> None:
    with pytest.raises(LabError, match="--interleave-gpus=COUNT"):
        cluster.command("srun", "--interleave-group=direct", "--gpus=1", "true")


def test_salloc_gives_its_steps_the_group(cluster: Cluster) -> None:
    argv = (
        "env",
        "SALLOC_INTERLEAVE_ROLE=shell",
        "salloc",
        "--quiet",
        "--interleave-group=shell",
        "--gpus-per-node=1",
        "srun",
        "env",
    )

    seen = variables(cluster.command(*argv))

    assert (seen["INTERLEAVE_GROUP"], bool(seen[TOKEN])) == ("shell", True)
    assert seen["INTERLEAVE_ROLE"] == "shell"


def test_a_step_cannot_change_its_group(cluster: Cluster) -> None:
    job = cluster.sbatch(script("srun --interleave-group=two true; echo $?"), group="one", gres="gpu:1")

    cluster.wait(job)

    assert "a step runs in the group of its job, which is one" in cluster.output(job)
    assert cluster.output(job).splitlines()[-1] != "0"


def test_a_job_without_a_group_is_refused_in_our_partition(cluster: Cluster) -> None:
    with pytest.raises(SubmitRefused, match="takes jobs with --interleave-group=NAME alone"):
        cluster.sbatch(["true"], options=["--partition=interleave"])


def test_a_job_that_asks_for_no_gpu_is_refused_with_what_to_add(cluster: Cluster) -> None:
    with pytest.raises(SubmitRefused, match="no GPU is asked for; add --gpus-per-node=COUNT"):
        cluster.sbatch(["true"], group="empty")
