"""A node is drained under a real Slurm, with a real criu: the requeued job goes on where it was."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pytest

from lab import Cluster, LabError
from tests.lab.commands import PROGRAM
from tests.lab.draining import COUNTER, CRIU, NOT_HERE
from tests.slurm.members import eventually

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(NOT_HERE), reason=NOT_HERE),
]


def counts(cluster: Cluster, job: str) -> list[int]:
    lines = [line.split() for line in cluster.output(job).splitlines()]
    return [int(words[1]) for words in lines if words[:1] == ["counts"]]


def drained(cluster: Cluster, node: str, *options: str) -> bool:
    with contextlib.suppress(LabError):
        cluster.command(str(PROGRAM), "drain", node, *options, "--config", str(cluster.config))
        return True
    return False


def test_a_job_of_a_drained_node_is_requeued_and_goes_on_where_it_was(tmp_path: Path) -> None:
    agent = {"backend": "noop", "criu": CRIU, "image_dir": str(tmp_path / "images")}
    with Cluster.start(nodes=("n1",), plain_nodes=(), config={"agent": agent}) as cluster:
        command = [str(PROGRAM), "run", "--own-turns", sys.executable, "-c", COUNTER, str(tmp_path / "end")]
        job = cluster.sbatch(
            command, group="drained", gres="gpu:1", options=("--requeue", "--open-mode=append")
        )
        cluster.wait(job, "RUNNING")
        assert eventually(lambda: len(counts(cluster, job)) > 3)

        assert eventually(lambda: drained(cluster, "n1", "--keep-node")), cluster.logs("agent-n1")

        before = counts(cluster, job)
        cluster.wait(job, "PENDING")
        cluster.begin_soon(job)
        assert eventually(lambda: len(counts(cluster, job)) > len(before) + 2), cluster.logs("agent-n1")
        assert cluster.job(job)["Restarts"] == "1"
        numbers = counts(cluster, job)
        assert numbers == list(range(1, len(numbers) + 1))
        (tmp_path / "end").touch()
        assert eventually(lambda: cluster.job(job)["JobState"] == "FAILED")
        assert cluster.job(job)["ExitCode"] == "7:0"


def test_the_job_of_a_node_that_is_drained_in_slurm_goes_on_on_another_node(tmp_path: Path) -> None:
    agent = {"backend": "noop", "criu": CRIU, "image_dir": str(tmp_path / "images")}
    with Cluster.start(nodes=("n1", "n2"), plain_nodes=(), config={"agent": agent}) as cluster:
        command = [str(PROGRAM), "run", "--own-turns", sys.executable, "-c", COUNTER, str(tmp_path / "end")]
        options = ("--requeue", "--open-mode=append")
        job = cluster.sbatch(command, group="elsewhere", gres="gpu:1", options=options)
        cluster.wait(job, "RUNNING")
        node = cluster.job(job)["NodeList"]
        other = next(name for name in cluster.layout.nodes if name != node)
        assert eventually(lambda: len(counts(cluster, job)) > 3)

        assert eventually(lambda: drained(cluster, node)), cluster.logs(f"agent-{node}")

        before = counts(cluster, job)
        assert eventually(lambda: cluster.job(job).get("ReqNodeList") == other)
        assert eventually(lambda: not cluster.held(job))
        cluster.begin_soon(job)
        assert eventually(lambda: len(counts(cluster, job)) > len(before) + 2), (
            f"{cluster.output(job)}\n{cluster.logs(f'agent-{other}')}"
        )
        numbers = counts(cluster, job)
        assert numbers == list(range(1, len(numbers) + 1))
        (tmp_path / "end").touch()
        assert eventually(lambda: cluster.job(job)["JobState"] == "FAILED")
        assert (cluster.job(job)["NodeList"], cluster.job(job)["ExitCode"]) == (other, "7:0")
