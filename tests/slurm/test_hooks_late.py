"""A site's own prologs and epilogs beside ours, slow and late ones; a node agent that does not answer."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import Cluster
from tests.slurm.members import (
    eventually,
    never_two_on_a_device,
    slices,
    submit_member,
    submit_pair,
    violations,
)

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]


@contextlib.contextmanager
def around(cluster: Cluster, script: str, before: str = "", after: str = "") -> Iterator[None]:
    """Let nodes run the lines *before* and *after* our *script*, as a site's own script would."""
    path = cluster.layout.etc / "hooks" / script
    ours, theirs = path.with_name(f"ours-{script}"), path.with_name(f"theirs-{script}")
    shutil.copy(path, ours)
    theirs.write_text(f"#!/bin/sh\n{before}\n{ours}\n{after}\nexit 0\n")
    theirs.chmod(0o755)
    theirs.replace(path)  # a shell that reads the old one goes on with that
    try:
        yield
    finally:
        ours.replace(path)


def until_there(path: Path) -> str:
    return f"while ! test -e {path}; do /bin/sleep 0.1; done"


def test_a_job_that_is_cancelled_in_its_prolog_leaves_no_member_and_no_place(cluster: Cluster) -> None:
    begun, go = cluster.out / "prolog-begun", cluster.out / "prolog-go"
    with around(cluster, "prolog.sh", after=f"/bin/touch {begun}\n{until_there(go)}"):
        job = submit_member(cluster, "in-prolog", "--turns", "1")
        assert eventually(begun.exists)
        cluster.scancel(job.job_id)
        go.touch()
        cluster.wait(job.job_id, "CANCELLED")

    a, b, end = submit_pair(cluster, "in-prolog")
    end.touch()
    a.completed()
    b.completed()

    assert job.notes() == []
    assert len({device for row in slices(cluster, a, b) for device in row.devices}) == 1
    assert never_two_on_a_device(slices(cluster, a, b))


def test_an_epilog_that_comes_late_and_twice_disturbs_nobody_on_the_device(cluster: Cluster) -> None:
    begun, go, end, last = (cluster.out / f"epilog-{name}" for name in ("begun", "go", "end", "last"))
    late = f"/bin/touch {begun}\n{until_there(go)}\n{cluster.layout.etc}/hooks/ours-epilog.sh"
    first = submit_member(cluster, "late-epilog", "--turns", "1", "--hold-for", str(end))
    first.until("granted")
    second = submit_member(cluster, "late-epilog", "--turns", "2", "--until", str(last))
    cluster.wait(second.job_id, "RUNNING")
    with around(cluster, "epilog.sh", before=late):
        end.touch()
        assert eventually(begun.exists)
        second.until("yielding")
        go.touch()
        first.completed()
        second.until("yielding", len(second.epochs()) + 1)
        last.touch()
        second.completed()

    rows = slices(cluster, first, second)
    assert len({device for row in rows for device in row.devices}) == 1
    assert {row.state for row in rows} == {"YIELDED"}
    assert not violations(cluster)


def test_a_job_runs_and_ends_though_the_agent_of_its_node_does_not_answer(cluster: Cluster) -> None:
    node = cluster.layout.nodes[0]
    agent = cluster.daemons[f"agent-{node}"].process
    assert agent is not None
    there = (f"--nodelist={node}",)
    job = cluster.sbatch(["echo", "ran"], group="silent", gres="gpu:1", options=(*there, "--begin=now+1hour"))
    assert eventually(lambda: "state=released" in cluster.job(job)["AdminComment"])

    os.kill(agent.pid, signal.SIGSTOP)
    try:
        cluster.begin_soon(job)
        cluster.wait(job)
    finally:
        os.kill(agent.pid, signal.SIGCONT)

    assert cluster.output(job) == "ran"
    assert "DRAIN" not in cluster.command("scontrol", "show", "node", node)
    submit_member(cluster, "silent", "--turns", "1", options=there).completed()
