"""What its user can change of an interleaved job on a real Slurm, and what he cannot."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import Cluster
from lab.processes import LabError, wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(90), pytest.mark.usefixtures("nothing_left")]

AS_NOBODY = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")


@contextlib.contextmanager
def broken_rules(cluster: Cluster) -> Iterator[None]:
    """Let the rules of job_submit fail to load."""
    rules = cluster.root / "etc" / "interleave_rules.lua"
    text = rules.read_text()
    try:
        write_rules(rules, "error('broken')")
        yield
    finally:
        write_rules(rules, text)


def write_rules(rules: Path, text: str) -> None:
    rules.write_text(text)
    # Slurm reads its script again where that is younger than its last reading, in whole seconds.
    soon = time.time() + 5
    os.utime(rules.with_name("job_submit.lua"), (soon, soon))


def test_with_broken_rules_a_user_changes_nothing_of_an_interleaved_job_and_the_helper_goes_on(
    cluster: Cluster,
) -> None:
    cluster.kill9("interleaved")
    try:
        options = ["--output=/dev/null"]
        job = cluster.sbatch(["true"], group="mine", gres="gpu:1", user="nobody", options=options)
        other = cluster.sbatch(["true"], user="nobody", options=[*options, "--hold"])
        with broken_rules(cluster):
            for change in (("release", job), ("update", f"JobId={job}", "NumNodes=2-2")):
                with pytest.raises(LabError):
                    cluster.command(*AS_NOBODY, "scontrol", *change)
            assert cluster.held(job)
            cluster.command(*AS_NOBODY, "scontrol", "release", other)
            cluster.start_again("interleaved")
            cluster.wait(job)
    finally:
        cluster.restart("interleaved")


EMPTIED = ("ReqNodeList=", "ExcNodeList=", "TresPerNode=")


def place(cluster: Cluster, job: str) -> list[str]:
    found = cluster.job(job)
    return [found.get(key, "") for key in ("NumNodes", "ReqNodeList", "ExcNodeList", "TresPerNode")]


def test_a_user_cannot_change_where_a_job_will_start_that_has_its_devices(cluster: Cluster) -> None:
    later = ("--begin=now+1hour", "--output=/dev/null")
    parts = [*later, "--interleave-group=first", "--gres=gpu:1", ":", *later, "--interleave-group=second"]
    command = ("sbatch", "--parsable", *parts, "--gres=gpu:1", "--wrap=true")
    first = cluster.command(*AS_NOBODY, *command).strip()
    job = cluster.sbatch(["true"], group="mine", gres="gpu:1", user="nobody", options=later)
    names = (job, f"{first}+0")
    for name in names:
        assert wait_until(lambda name=name: ";state=released" in cluster.job(name)["AdminComment"], 20)
    before = [place(cluster, name) for name in names]

    for change in ("NumNodes=2-2", "ReqNodeList=n2", "ExcNodeList=n1", "TresPerNode=gres:gpu:1", *EMPTIED):
        for name in names:
            with pytest.raises(LabError):
                cluster.command(*AS_NOBODY, "scontrol", "update", f"JobId={name}", change)

    assert [place(cluster, name) for name in names] == before
    cluster.command(*AS_NOBODY, "scontrol", "update", f"JobId={job}", "JobName=renamed")


def test_a_user_cannot_take_nodes_from_a_job_that_runs(cluster: Cluster) -> None:
    options = ["--nodes=2", "--output=/dev/null"]
    job = cluster.sbatch(["sleep", "60"], group="two", gres="gpu:1", user="nobody", options=options)
    cluster.wait(job, "RUNNING")

    for change in ("NumNodes=1", "ReqNodeList=n1"):
        with pytest.raises(LabError):
            cluster.command(*AS_NOBODY, "scontrol", "update", f"JobId={job}", change)

    assert cluster.job(job)["NumNodes"] == "2"


def test_a_user_can_neither_release_nor_move_a_job_that_waits_for_its_devices(cluster: Cluster) -> None:
    cluster.kill9("interleaved")
    try:
        options = ["--output=/dev/null", "--mem=200"]
        job = cluster.sbatch(["true"], group="mine", gres="gpu:1", user="nobody", options=options)

        for change in (
            ("release", job),
            ("update", f"JobId={job}", "AdminComment=x"),
            ("update", f"JobId={job}", "Partition=batch"),
            ("update", f"JobId={job}", "ReqNodeList=n1"),
            ("update", f"JobId={job}", "NumNodes=2-2"),
            *(("update", f"JobId={job}", change) for change in EMPTIED),
            ("update", f"JobId={job}", "MinMemoryNode=100"),
            ("update", f"JobId={job}", "MinMemoryCPU=100"),
        ):
            with pytest.raises(LabError):
                cluster.command(*AS_NOBODY, "scontrol", *change)

        cluster.command(*AS_NOBODY, "scontrol", "update", f"JobId={job}", "MinMemoryNode=300")
        assert cluster.held(job)
        assert cluster.job(job)["AdminComment"].endswith(";state=held")
        assert cluster.job(job)["MinMemoryNode"] == "300M"
        cluster.command(*AS_NOBODY, "scancel", job)
    finally:
        cluster.start_again("interleaved")


def test_an_interleaved_job_cannot_be_asked_for_to_expand_another(cluster: Cluster) -> None:
    other = cluster.sbatch(["true"], options=["--begin=now+1hour", "--output=/dev/null"])

    with pytest.raises(LabError, match=r"--dependency=expand cannot be interleaved"):
        cluster.sbatch(["true"], group="mine", gres="gpu:1", options=[f"--dependency=expand:{other}"])
