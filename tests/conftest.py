"""Fixtures that several folders share."""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from lab import Cluster, why_not
from lab.databases import SERVERS

FOLDER = Path(__file__).parent
# What takes longest comes first, or the last workers would have nothing beside it (see Makefile).
FIRST = (
    "simulation/test_simulation.py",
    "test_packaging.py",
    "torch/test_watchdogs.py",
    "torch/test_unchanged_training.py",
    "simulation/test_mutations.py",
    "crash/test_kill9.py",
    "torch/test_ranks.py",
)

TEARDOWN_S = 300.0

# How long an example takes says more of the machine than of the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_configure() -> None:
    """Let Ctrl-C reach what tests start: a shell has it ignored by what runs in its background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what replays one history of tests/simulation."""
    parser.addoption("--seed", type=int, default=None, help="the one seed that tests/simulation runs")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files of `FIRST` first, the others after them as they are."""
    first = {FOLDER / name: place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: first.get(item.path, len(first)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    """End the process if it hangs here: a time limit counts once, so not for a test that failed by it."""
    faulthandler.dump_traceback_later(TEARDOWN_S, exit=True)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a real Slurm or a database server where there is none; on CI that is a failure."""
    needs = {"slurm": why_not, **{kind: server.why_not for kind, server in SERVERS.items()}}
    for mark, absent in needs.items():
        reason = absent() if item.get_closest_marker(mark) else ""
        if reason and os.environ.get("CI") == "true":
            pytest.fail(f"CI must run the tests on a real {mark}: {reason}", pytrace=False)
        elif reason:
            pytest.skip(f"no real {mark}: {reason}")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A private Slurm with ours installed, for all tests of the session; only for tests marked `slurm`."""
    with Cluster.start(config={"turns": {"gone_grace_s": 3}}) as started:
        yield started


@pytest.fixture
def nothing_left(cluster: Cluster) -> Iterator[None]:
    """Cancel what a test has left on that cluster: one that fails takes no seat from the next."""
    yield
    cluster.cancel_all()
