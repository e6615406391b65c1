"""Existing clients of the v1alpha1 services, run as jobs through the environment that a job finds."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from lab import Cluster
from slurm_interleave.client.wire import timeslice_orchestrator_v1alpha1_pb2 as pb
from tests.slurm.members import eventually, status

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

SCRIPT = Path(__file__).with_name("v1alpha1_member.py")


def test_two_jobs_that_speak_v1alpha1_alone_take_turns(cluster: Cluster) -> None:
    go = cluster.out / "go-wire"
    command = [sys.executable, str(SCRIPT), str(go)]
    jobs = [cluster.sbatch(command, group="wire", gres="gpu:1") for _ in range(2)]
    assert eventually(lambda: any(member.queue_place for member in status(cluster, "wire").values()))
    go.touch()
    for job in jobs:
        cluster.wait(job)

    restored = []
    for job in jobs:
        *turns, last = [json.loads(line) for line in cluster.output(job).splitlines() if line[0] == "{"]
        assert [turn["holder"] for turn in turns] == [job] * 3
        assert {turn["state"] for turn in turns} == {pb.GroupStatus.STATE_LOCKED}
        assert not turns[0]["restored"]
        restored += [turn["restored"] for turn in turns]
        assert last["jobs"] == [job]
    # Who held first came back to a saved state; how often that was depends on how fast each asked again.
    assert any(restored)
