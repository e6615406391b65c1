"""What the doctor says of one job."""

from __future__ import annotations

import pytest

from slurm_interleave.client.doctor.finding import Level
from slurm_interleave.orchestrator.doctor.part import of_job
from slurm_interleave.orchestrator.placement.squeue import SlurmJob

HELD = "interleave:v1;group=rl;nodes=1;devices=9;role=;why=no node has so many;state=held"


@pytest.mark.parametrize(
    ("comment", "level", "text"),
    [
        ("", Level.OK, "not interleaved"),
        (
            HELD,
            Level.WARNING,
            "group rl, AdminComment interleave:v1;group=rl;nodes=1;devices=9;role=;why=no node has",
        ),
        (HELD.replace("why=no node has so many;", ""), Level.OK, "group rl"),
    ],
)
def test_a_job_that_says_why_it_waits_is_warned_of(comment: str, level: Level, text: str) -> None:
    found = of_job(SlurmJob("7", frozenset({"PENDING"}), 0, "JobHeldUser", comment, (), max_nodes=1))

    assert (found.level, found.check) == (level, "job 7")
    assert text in found.text
