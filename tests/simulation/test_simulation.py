"""The whole system on a virtual clock, while everything in it fails: what was promised holds.

Real are orchestrator, agents and clients; simulated are time, network, processes, disks and devices. A
failure names its seed; `pytest tests/simulation --seed N` is the same history again.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.simulation.disk import scratch
from tests.simulation.world import Outcome, simulate

ROOT = Path(__file__).parents[2]
LONGER = int(os.environ.get("INTERLEAVE_TEST_EFFORT", "1"))
SEEDS = range(40 * LONGER)
# Of events that must be among them.
KINDS = ("all at once", "one by one", "Deadlock", "cleared", "drain", "saved", "goes on")
EVENTS = 24_600  # in each history before faults stop, so that all seeds have more than a million
AGAIN = """
import sys
from tests.simulation.world import simulate
print(simulate(int(sys.argv[1]), 3000).digest)
"""


def history(seed: int) -> Outcome:
    return simulate(seed, EVENTS)


@pytest.mark.timeout(900)
def test_the_promises_hold_in_a_million_events(request: pytest.FixtureRequest) -> None:
    chosen = request.config.getoption("--seed")
    if chosen is not None:
        print(history(chosen))
        return
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        outcomes = list(pool.map(history, SEEDS))

    assert sum(outcome.events for outcome in outcomes) >= 1_000_000
    assert all(outcome.grants == outcome.slices for outcome in outcomes)
    assert sum(outcome.grants for outcome in outcomes) > 10_000
    assert sum(outcome.abandoned for outcome in outcomes) > 0
    counts = sum((outcome.counts for outcome in outcomes), Counter[str]())
    assert all(counts[kind] for kind in KINDS), counts


@pytest.mark.parametrize("seed", range(1000, 1006))
def test_they_hold_on_a_real_database_too(seed: int) -> None:
    outcome = simulate(seed, 3000, sql=True)

    assert outcome.grants == outcome.slices > 0


def test_the_same_seed_is_the_same_history_in_any_process() -> None:
    here = [simulate(7, 3000).digest for _ in range(2)]
    there = [
        subprocess.run(
            [sys.executable, "-c", AGAIN, "7"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hashes},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hashes in ("1", "2")
    ]

    assert {*here, *map(int, there)} == {here[0]}
    assert simulate(8, 3000).digest != here[0]


def test_what_a_simulation_has_left_that_was_killed_is_removed_by_the_next() -> None:
    code = "from tests.simulation.disk import scratch; print(scratch())"
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    left = Path(ended.stdout.strip())
    was_there = left.is_dir()

    mine, another = scratch(), scratch()

    assert (was_there, left.exists()) == (True, False)
    assert mine.is_dir()
    mine.rmdir()
    another.rmdir()
