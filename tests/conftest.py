"""Fixtures that several folders share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from lab import Cluster, why_not


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a real Slurm where there is none; on CI that is a failure."""
    if item.get_closest_marker("slurm") is None:
        return
    reason = why_not()
    if not reason:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must run the tests on a real Slurm: {reason}", pytrace=False)
    pytest.skip(f"no real Slurm: {reason}")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A private Slurm with ours installed, for all tests of the session; only for tests marked `slurm`."""
    with Cluster.start() as started:
        yield started
