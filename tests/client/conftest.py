from __future__ import annotations

from collections.abc import Iterator

import pytest

from slurm_interleave.client import waiting
from slurm_interleave.client.interleaver import Interleaver
from tests.client.fakes import FakeOrchestrator


@pytest.fixture
def orchestrator() -> Iterator[FakeOrchestrator]:
    """One that serves already."""
    fake = FakeOrchestrator().start()
    yield fake
    fake.stop()


@pytest.fixture
def environ(orchestrator: FakeOrchestrator) -> dict[str, str]:
    """The environment of job 17."""
    return {
        "INTERLEAVE_JOB_ID": "17",
        "INTERLEAVE_GROUP": "demo",
        "INTERLEAVE_NODE": "n1",
        "INTERLEAVE_ORCHESTRATOR": orchestrator.address,
        "INTERLEAVE_TOKEN": "secret",
    }


@pytest.fixture
def mine(environ: dict[str, str]) -> Iterator[Interleaver]:
    """The interleaver of job 17."""
    made = Interleaver.from_env(environ)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def not_told_yet() -> None:
    waiting._told_outside.clear()
