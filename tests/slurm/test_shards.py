"""Interleaved jobs that share devices as Slurm's own shards of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from lab import Cluster
from lab.slurm_conf import slurm_version
from slurm_interleave.orchestrator.placement.admin_comment import parse_comment
from tests.slurm.members import (
    eventually,
    never_two_on_a_device,
    slices,
    submit_member,
    submit_pair,
    violations,
)

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]
SINCE = (24, 11)


@pytest.fixture(scope="module")
def shards() -> Iterator[Cluster]:
    if slurm_version() < SINCE:
        pytest.skip("Slurm before 24.11 loses count of shards, or gives away devices that have some")
    with Cluster.start(nodes=("n1",), shards=True, slurm=("PartitionName=whole Nodes=n1",)) as started:
        yield started


def device(cluster: Cluster, job: str) -> int:
    """Return the index of the one device that the job was given."""
    place = parse_comment(cluster.job(job)["AdminComment"])
    assert place is not None
    (index,) = place.indices
    return index


def variables(text: str) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in text.splitlines())


def test_members_share_one_device_and_neither_reconfiguration_nor_restart_changes_a_book(
    piece: Callable[[str, str], None], request: pytest.FixtureRequest
) -> None:
    piece("Jobs can share devices as Slurm's own shards", "yes" if slurm_version() >= SINCE else "no")
    shards: Cluster = request.getfixturevalue("shards")
    a, b, end = submit_pair(shards, "pair")
    shards.command("scontrol", "reconfigure")
    shards.restart("slurmctld")
    third = submit_member(shards, "pair", "--turns", "1")
    third.completed()
    end.touch()
    a.completed()
    b.completed()

    rows = slices(shards, a, b)
    assert len({device for row in rows for device in row.devices}) == 1
    assert {row.devices[0] for row in rows}.isdisjoint(row.devices[0] for row in slices(shards, third))
    assert never_two_on_a_device(rows)
    assert not violations(shards)
    assert "placement.books_differ" not in shards.logs("interleaved", 10000)


def test_a_plain_srun_works_and_a_job_that_this_one_submits_asks_for_no_shard(shards: Cluster) -> None:
    file = shards.out / "inner"
    inner = f"sbatch --parsable --wait --output={file} --wrap='srun env' >/dev/null; cat {file}"
    job = shards.sbatch(["sh", "-c", f"srun env; echo; {inner}"], group="steps", gres="gpu:1")

    shards.wait(job)

    step, _, other = shards.output(job, 1000).partition("\n\n")
    assert variables(step)["INTERLEAVE_TOKEN"]
    assert variables(step)["CUDA_VISIBLE_DEVICES"] == f"SIM-n1-{device(shards, job)}"
    assert variables(other)["SLURM_JOB_PARTITION"] == "batch"
    assert "SLURM_GRES" not in variables(other)


def test_a_job_of_two_devices_is_held_with_the_reason(shards: Cluster) -> None:
    job = shards.sbatch(["true"], group="wide", gres="gpu:2")

    assert eventually(lambda: "why=shards are of 1 device" in shards.command("scontrol", "show", "job", job))

    shards.scancel(job)


def test_a_job_that_wants_a_whole_device_gets_none_that_has_members(shards: Cluster) -> None:
    holds = [shards.sbatch(["sleep", "300"], group=f"half-{n}", gres="gpu:1") for n in range(2)]
    for job in holds:
        shards.wait(job, "RUNNING")

    whole = shards.sbatch(["sh", "-c", "echo $SLURM_JOB_GPUS"], gres="gpu:1", options=["--partition=whole"])
    assert eventually(lambda: shards.job(whole)["Reason"] == "Resources")
    free = device(shards, holds[1])
    shards.scancel(holds[1])
    shards.wait(whole)
    shards.scancel(holds[0])

    assert shards.output(whole).strip() == str(free)


def test_where_slurm_numbers_the_devices_of_each_job_anew_a_job_has_its_own_all_the_same(
    cgroups: None, shards: Cluster
) -> None:
    name = f"s{os.getpid()}"
    with Cluster.start(nodes=(name,), plain_nodes=(), cgroups=True, shards=True) as fenced:
        go = fenced.out / "go"
        script = f"env; while ! test -e {go}; do sleep 0.1; done"
        jobs = [fenced.sbatch(["sh", "-c", script], group=f"g{n}", gres="gpu:1") for n in range(2)]
        for job in jobs:
            fenced.wait(job, "RUNNING")
        go.touch()
        for job in jobs:
            fenced.wait(job)

        seen = [variables(fenced.output(job, 1000)) for job in jobs]
        assert [one["CUDA_VISIBLE_DEVICES"] for one in seen] == [f"SIM-{name}-0", f"SIM-{name}-1"]
        assert [one["SLURM_JOB_GPUS"] for one in seen] == ["0", "1"]
