"""Jobs with a group, from sbatch to their device, on a real Slurm."""

from __future__ import annotations

import pytest

from lab import Cluster, SubmitRefused
from slurm_interleave.orchestrator.placement.admin_comment import AdminComment, parse_comment
from tests.slurm.members import eventually

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300), pytest.mark.usefixtures("nothing_left")]

ENVIRONMENT = ["env"]
LONG = ["sleep", "300"]


def comment_of(cluster: Cluster, job_id: str) -> AdminComment:
    comment = parse_comment(cluster.job(job_id)["AdminComment"])
    assert comment is not None
    return comment


def seen_by(cluster: Cluster, job_id: str) -> dict[str, str]:
    """The environment that a finished job printed."""
    lines = cluster.output(job_id, 1000).splitlines()
    return dict(line.partition("=")[::2] for line in lines)


def test_a_job_that_did_not_ask_does_not_notice_us(cluster: Cluster) -> None:
    job = cluster.sbatch(ENVIRONMENT, gres="gpu:1")

    cluster.wait(job)

    seen = seen_by(cluster, job)
    ours = [key for key in seen if key.startswith(("INTERLEAVE_", "TIMESLICE_"))]
    assert sorted(ours) == ["INTERLEAVE_CONFIG", "INTERLEAVE_LAB"]  # of the lab, which submitted it
    assert seen["CUDA_VISIBLE_DEVICES"] == "0"
    assert "AdminComment" not in cluster.job(job)


def test_a_bad_group_name_is_refused_with_what_is_allowed_and_nothing_queues(cluster: Cluster) -> None:
    with pytest.raises(SubmitRefused, match=r"not allowed; allowed are 1 to 63 characters"):
        cluster.sbatch(ENVIRONMENT, group="no spaces please", gres="gpu:1")

    assert cluster.command("squeue", "--noheader").strip() == ""


def test_a_job_runs_on_the_device_that_was_reserved_for_it(cluster: Cluster) -> None:
    job = cluster.sbatch(ENVIRONMENT, group="one", gres="gpu:1")

    cluster.wait(job)

    comment, seen, record = comment_of(cluster, job), seen_by(cluster, job), cluster.job(job)
    assert (comment.group, comment.state, len(comment.indices)) == ("one", "released", 1)
    assert record["NodeList"] == record["ReqNodeList"] == seen["INTERLEAVE_NODE"]
    assert (seen["INTERLEAVE_JOB_ID"], seen["INTERLEAVE_GROUP"]) == (job, "one")
    assert seen["CUDA_VISIBLE_DEVICES"].endswith(str(comment.indices[0]))


def test_two_jobs_of_one_group_run_on_one_device_at_the_same_time(cluster: Cluster) -> None:
    first = cluster.sbatch(LONG, group="pair", gres="gpu:1")
    second = cluster.sbatch(LONG, group="pair", gres="gpu:1")

    cluster.wait(first, "RUNNING")
    cluster.wait(second, "RUNNING")

    assert cluster.job(first)["NodeList"] == cluster.job(second)["NodeList"]
    assert comment_of(cluster, first).indices == comment_of(cluster, second).indices


def test_two_groups_run_on_different_devices(cluster: Cluster) -> None:
    jobs = [cluster.sbatch(LONG, group=group, gres="gpu:1") for group in ("a", "b")]

    for job in jobs:
        cluster.wait(job, "RUNNING")

    assert len({(cluster.job(j)["NodeList"], comment_of(cluster, j).indices) for j in jobs}) == 2


def test_a_job_of_two_nodes_gets_the_same_devices_on_both(cluster: Cluster) -> None:
    job = cluster.sbatch(LONG, group="wide", options=["--nodes=2", "--gpus-per-node=2"])

    cluster.wait(job, "RUNNING")

    assert cluster.job(job)["NodeList"] == "n[1-2]"
    assert comment_of(cluster, job).indices == (0, 1)


def test_a_job_waits_held_until_a_place_is_free(cluster: Cluster) -> None:
    wide = cluster.sbatch(LONG, group="wide", options=["--nodes=2", "--gpus-per-node=2"])
    cluster.wait(wide, "RUNNING")
    other = cluster.sbatch(LONG, group="other", gres="gpu:1")
    late = cluster.sbatch(LONG, group="wide", options=["--nodes=2", "--gpus-per-node=2"])
    cluster.wait(late, "RUNNING")
    assert cluster.held(other)

    cluster.scancel(wide, late)

    cluster.wait(other, "RUNNING")


def test_a_job_submitted_while_the_orchestrator_is_down_is_placed_when_it_is_back(cluster: Cluster) -> None:
    cluster.kill9("interleaved")
    job = cluster.sbatch(ENVIRONMENT, group="late", gres="gpu:1")
    assert cluster.held(job)

    cluster.start_again("interleaved")

    cluster.wait(job)


def test_places_outlive_a_crash_of_the_orchestrator_and_a_restart_of_slurmctld(cluster: Cluster) -> None:
    first = cluster.sbatch(LONG, group="pair", gres="gpu:1")
    cluster.wait(first, "RUNNING")
    cluster.kill9("interleaved")
    cluster.restart("slurmctld")
    cluster.start_again("interleaved")

    second = cluster.sbatch(LONG, group="pair", gres="gpu:1")
    cluster.wait(second, "RUNNING")

    assert cluster.job(first)["JobState"] == "RUNNING"
    assert cluster.job(first)["NodeList"] == cluster.job(second)["NodeList"]
    assert comment_of(cluster, first).indices == comment_of(cluster, second).indices


def test_a_requeued_job_starts_again_in_its_place(cluster: Cluster) -> None:
    job = cluster.sbatch(LONG, group="again", gres="gpu:1")
    cluster.wait(job, "RUNNING")
    place = (cluster.job(job)["NodeList"], comment_of(cluster, job).indices)

    cluster.command("scontrol", "requeue", job)
    cluster.wait(job, "PENDING")
    assert not cluster.held(job)
    cluster.begin_soon(job)
    cluster.wait(job, "RUNNING")

    assert (cluster.job(job)["NodeList"], comment_of(cluster, job).indices) == place


def test_a_job_of_a_node_that_went_down_starts_again_on_another(cluster: Cluster) -> None:
    job = cluster.sbatch(LONG, group="moved", gres="gpu:1")
    cluster.wait(job, "RUNNING")
    lost = cluster.job(job)["NodeList"]
    other = next(node for node in cluster.layout.nodes if node != lost)

    def moved() -> bool:
        # Again and again: from 24.11 on a last word of a dead slurmd brings its node back.
        cluster.command("scontrol", "update", f"NodeName={lost}", "State=DOWN", "Reason=test")
        return cluster.job(job).get("ReqNodeList") == other

    cluster.kill9(f"slurmd-{lost}")
    try:
        assert eventually(moved, 0.5)
        assert eventually(lambda: not cluster.held(job))
        cluster.begin_soon(job)
        cluster.wait(job, "RUNNING")
        assert cluster.job(job)["NodeList"] == other
    finally:
        cluster.start_again(f"slurmd-{lost}")
        assert eventually(lambda: "idle" in cluster.command("sinfo", "-hn", lost, "-o%T"))


def test_a_job_that_its_user_held_stays_held_when_the_orchestrator_restarts(cluster: Cluster) -> None:
    job = cluster.sbatch(ENVIRONMENT, group="kept", gres="gpu:1", options=["--begin=now+1hour"])
    assert eventually(lambda: comment_of(cluster, job).state == "released")
    cluster.command("scontrol", "hold", job)
    cluster.begin_soon(job)
    cluster.kill9("interleaved")
    cluster.start_again("interleaved")

    cluster.wait(cluster.sbatch(ENVIRONMENT, group="kept", gres="gpu:1"))  # it looks at the queue again

    assert cluster.held(job)
    cluster.command("scontrol", "release", job)
    cluster.wait(job)
