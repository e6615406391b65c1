"""What administrators change of placed jobs on a real Slurm, and what placement makes of it."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from lab import Cluster, LabError
from slurm_interleave.orchestrator.placement.ports import Update
from slurm_interleave.orchestrator.placement.slurm import SlurmCommands
from tests.slurm.members import alarms, eventually

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300), pytest.mark.usefixtures("nothing_left")]


def has_its_place(cluster: Cluster, job: str) -> bool:
    return ";state=released" in cluster.job(job).get("AdminComment", "")


@pytest.mark.parametrize("change", ["ReqNodeList={other}", "NumNodes=2-2"])
def test_a_pin_that_an_administrator_changed_is_put_right_before_the_job_starts(
    cluster: Cluster, change: str
) -> None:
    job = cluster.sbatch(["env"], group="moved", gres="gpu:1", options=["--begin=now+1hour"])
    assert eventually(lambda: has_its_place(cluster, job))
    node = cluster.job(job)["ReqNodeList"]
    other = "n2" if node == "n1" else "n1"
    cluster.command("scontrol", "update", f"JobId={job}", change.format(other=other))

    assert eventually(lambda: cluster.job(job)["ReqNodeList"] == node and not cluster.held(job))
    cluster.begin_soon(job)
    cluster.wait(job)

    assert (cluster.job(job)["NodeList"], cluster.job(job)["NumNodes"]) == (node, "1")


def test_what_an_administrator_made_a_first_component_exclude_is_put_right_before_it_starts(
    cluster: Cluster,
) -> None:
    part = ("--begin=now+1hour", "--output=/dev/null", "--gres=gpu:1")
    parts = (*part, "--interleave-group=lead", ":", *part, "--interleave-group=follow")
    job = cluster.command("sbatch", "--parsable", *parts, "--wrap=true").strip()
    lead = f"{job}+0"
    assert eventually(lambda: has_its_place(cluster, lead))
    excluded = cluster.job(lead)["ExcNodeList"]

    for change in ("ExcNodeList=n1,n2", "ExcNodeList="):
        cluster.command("scontrol", "update", f"JobId={lead}", change)
        assert eventually(lambda: cluster.job(lead)["ExcNodeList"] == excluded), change
    assert eventually(lambda: has_its_place(cluster, lead))


def test_of_many_changes_by_one_scontrol_each_is_made_or_refused_for_itself(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
    jobs = [cluster.sbatch(["true"], options=["--hold", "--begin=now+1hour"]) for _ in range(5)]
    names, unknown = [*jobs[:2], "99998", *jobs[2:], "99999"], ["99998", "99999"]
    slurm = SlurmCommands(timeout_s=60)

    updated = asyncio.run(slurm.update([Update(name, f"of-{name}") for name in names]))
    released = asyncio.run(slurm.release(names))

    assert sorted(updated) == sorted(released) == unknown
    assert all("Invalid job id" in str(error) for error in (*updated.values(), *released.values()))
    assert [cluster.job(job)["AdminComment"].strip() for job in jobs] == [f"of-{job}" for job in jobs]
    assert not any(map(cluster.held, jobs))
    assert asyncio.run(slurm.release(jobs)) == {}


def updated(cluster: Cluster, job: str, *changes: str) -> bool:
    """Change a job; false where Slurm says "temporarily unavailable", as 26.05 does at the first try."""
    with contextlib.suppress(LabError):
        cluster.command("scontrol", "update", f"JobId={job}", *changes)
        return True
    return False


def test_gres_that_the_book_does_not_know_of_are_an_alarm_until_they_are_free(cluster: Cluster) -> None:
    before = len(alarms(cluster))
    job = cluster.sbatch(["sleep", "300"], options=["--hold"])
    gres = f"{cluster.layout.gres[0]}:g1:1"
    assert eventually(lambda: updated(cluster, job, "Partition=interleave", f"Gres={gres}"))
    cluster.command("scontrol", "release", job)

    assert eventually(lambda: len(alarms(cluster)) > before)
    cluster.scancel(job)
    assert eventually(lambda: len(alarms(cluster)) > before + 1)
    differ, agree = alarms(cluster)[before:]
    assert "placement.books_differ" in differ
    assert f"gres={gres[:-2]} booked=0 used=1" in differ
    assert "placement.books_agree" in agree
