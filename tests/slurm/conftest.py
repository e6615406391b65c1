"""What the tests of this folder share."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from lab import Cluster
from lab.slurm_conf import cgroups_missing

PIECES = "INTERLEAVE_PIECES"


@pytest.fixture
def piece() -> Callable[[str, str], None]:
    """Return what notes a piece of Slurm, and what this release does with it, for `make test-matrix`."""

    def note(what: str, result: str) -> None:
        if PIECES in os.environ:
            with Path(os.environ[PIECES]).open("a") as file:
                file.write(json.dumps([what, result]) + "\n")

    return note


@pytest.fixture(scope="package")
def cgroups() -> None:
    """Skip what needs cgroups of v1, which the lab sets up, where there are none; on CI that is a failure."""
    need_cgroups()


def need_cgroups() -> None:
    reason = cgroups_missing()
    if reason and os.environ.get("CI") == "true":
        pytest.fail(f"CI must run the tests with Slurm's cgroups: {reason}", pytrace=False)
    elif reason:
        pytest.skip(reason)


@pytest.fixture(scope="package")
def fenced(cgroups: None) -> Iterator[Cluster]:
    """A cluster of one node where Slurm keeps each job to its devices and its memory."""
    with fenced_cluster("c") as started:
        yield started


def fenced_cluster(letter: str) -> AbstractContextManager[Cluster]:
    """Return such a cluster; those that are there at a time have *letter*s of their own."""
    # A name of its own: the cgroups of all clusters of a machine lie in one folder. And job ids of its own:
    # agents find processes by those, also the processes of other clusters.
    first = 1 + os.getpid() % 60000 * 1000 + ord(letter)
    name, ids = f"{letter}{os.getpid()}", f"FirstJobId={first}"
    return Cluster.start(nodes=(name,), plain_nodes=(), cgroups=True, slurm=[ids])
