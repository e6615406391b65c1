"""What the tests of this folder share."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
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
def fenced() -> Iterator[Cluster]:
    """A cluster of one node where Slurm keeps each job to its devices and its memory."""
    if cgroups_missing():
        pytest.skip(cgroups_missing())
    # A name of its own: the cgroups of all clusters of a machine lie in one folder.
    with Cluster.start(nodes=(f"c{os.getpid()}",), plain_nodes=(), cgroups=True) as started:
        yield started
