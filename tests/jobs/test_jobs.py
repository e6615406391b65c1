"""The scripts of examples/jobs, submitted as their comments say, on a real Slurm."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from demo.slices import read_slices
from jobs.run import EXAMPLES_BY_NAME, MEMBERS, SIM, run
from lab import Cluster
from slurm_interleave.client.sim.records import VIOLATIONS, read_lines
from slurm_interleave.client.wire import interleave_v1_pb2 as pb

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(180)]
QUICK = ["--steps", "2", "--rollout-seconds", "0.2", "--train-seconds", "0.2", "--reward-seconds", "0.1"]
STEPS = 5
SPLIT = ["--steps", str(STEPS), "--seconds", "0.1"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster.start(sim=SIM, members=MEMBERS) as started:
        yield started
        for node in (*started.layout.nodes, *started.layout.plain_nodes):
            assert read_lines(started.scratch.sim / node / VIOLATIONS) == []


def components(job: str) -> list[str]:
    """Return the ids of a job of two components: those of the second follow."""
    return [job, str(int(job) + 1)]


def shared(slices: list[pb.Slice]) -> set[tuple[str, tuple[int, ...]]]:
    return {(row.nodes, tuple(row.devices)) for row in slices}


@pytest.mark.parametrize(("name", "members"), [("pair", 2), ("three", 3)])
def test_jobs_of_a_group_take_turns_on_one_device(cluster: Cluster, name: str, members: int) -> None:
    jobs = run(cluster, EXAMPLES_BY_NAME[name], QUICK)

    slices = read_slices(cluster.config, list(jobs))
    assert {row.job_id for row in slices} == set(jobs)
    assert len(jobs) == members
    assert len(shared(slices)) == 1
    summaries = [json.loads((out / "summary.json").read_text()) for out in jobs.values()]
    assert [each["seed"] for each in summaries] == list(range(1, members + 1))


def distance(out: Path, seed: int) -> float:
    """Return how far what was trained is from its target."""
    trained = np.array(json.loads((out / "trained.json").read_text()))
    return float(np.abs(trained - np.random.default_rng(seed).normal(size=trained.size)).max())


def test_trainers_share_a_device_while_each_sampler_has_its_own(cluster: Cluster) -> None:
    jobs = run(cluster, EXAMPLES_BY_NAME["async"], SPLIT)

    slices = read_slices(cluster.config, [part for job in jobs for part in components(job)])
    assert {(row.job_id, row.group, row.role) for row in slices} == {
        (job, "trainers", "trainer") for job in jobs
    }
    assert len(shared(slices)) == 1
    assert len(slices) == len(jobs) * (1 + STEPS)
    assert all(distance(out, seed) < 0.2 for seed, out in enumerate(jobs.values(), 1))


def test_trainers_and_samplers_take_turns_in_a_group_each(cluster: Cluster) -> None:
    jobs = run(cluster, EXAMPLES_BY_NAME["two-groups"], SPLIT)

    slices = read_slices(cluster.config, [part for job in jobs for part in components(job)])
    by_role = {role: [row for row in slices if row.role == role] for role in ("trainer", "sampler")}
    assert {len(shared(rows)) for rows in by_role.values()} == {1}
    assert shared(by_role["trainer"]).isdisjoint(shared(by_role["sampler"]))
    assert {len(rows) for rows in by_role.values()} == {len(jobs) * (1 + STEPS)}
    assert all(distance(out, seed) < 0.9 for seed, out in enumerate(jobs.values(), 1))


def test_one_process_takes_the_turns_of_trainer_and_sampler(cluster: Cluster) -> None:
    jobs = run(cluster, EXAMPLES_BY_NAME["one-driver"], SPLIT)

    slices = read_slices(cluster.config, [part for job in jobs for part in components(job)])
    turns = {
        (job, member): sorted(row.phase for row in slices if row.job_id == part)
        for job in jobs
        for member, part in zip(("trainer", "sampler"), components(job), strict=True)
    }
    trainer, sampler = (
        [*["load"], *["sync"] * STEPS, *["train"] * STEPS],
        [*["rollout"] * STEPS, *["sync"] * STEPS],
    )
    assert turns == {
        (job, member): phases
        for job in jobs
        for member, phases in (("trainer", trainer), ("sampler", sampler))
    }
    assert all(distance(out, seed) < 0.9 for seed, out in enumerate(jobs.values(), 1))
