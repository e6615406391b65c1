"""The figures of a history are those that one finds by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slurm_interleave.orchestrator.core.rules import Rules
from slurm_interleave.orchestrator.simulator.figures import PoolFigures, figures
from slurm_interleave.orchestrator.simulator.program import Acquire, Cost, Job, Place, Program, Until, Yield
from slurm_interleave.orchestrator.simulator.world import World

WIDE, SMALL = Place(("n1", "n2"), (0, 1)), Place(("n3",))
COST = Cost(snapshot_s=5, restore_s=2)


def job(name: str, place: Place, start_s: float, before: tuple[float, ...], hold_s: float) -> Job:
    """A job that leaves its devices alone for each of *before*, and then holds them."""

    def program(now: float) -> Program:
        for away in before:
            now = yield Until(now + away)
            now = yield Acquire("p")
            now = yield Until(now + hold_s)
            now = yield Yield("p")

    return Job(name, {"p": place}, program, COST, start_s)


# A holds from 10 to 110 and, after B's snapshot and its own restore, from 182 to 282; B from 115 to 175 and
# from 289 to 349; C is alone.
JOBS = [
    job("A", WIDE, 0, (10, 50), 100),
    job("B", WIDE, 20, (30, 40), 60),
    job("C", SMALL, 10, (0, 50), 50),
]


def test_the_figures_of_a_short_history_are_right() -> None:
    found = figures(JOBS, World(JOBS, Rules()).run())

    assert found.makespan_s == pytest.approx(349 - 10)
    assert found.bound_s == pytest.approx(2 * 100 + 2 * 60)
    assert found.slowdown == pytest.approx({"A": 282 / 260, "B": 329 / 190, "C": 1})
    assert found.saved_device_s == pytest.approx(4 * (260 + 190 - 349))
    # While both still have turns, less a tenth: from 37.2 to 282, and from 25 to 160.
    wide, small = (72.8 + 60 + 100) / 244.8, (35 + 50) / 135
    assert found.duty == pytest.approx((4 * wide + small) / 5)
    assert found.pools == (
        PoolFigures("p n1/0", 4, pytest.approx(wide), 1.0, 4, 3),
        PoolFigures("p n3/0", 1, pytest.approx(small), pytest.approx(100 / 150), 2, 0),
    )


@pytest.mark.parametrize(
    ("jobs", "bound_s"),
    [
        (JOBS[:1], 250),  # it is busy to its end, from its first grant at 10 on
        (JOBS[:2], 320),  # its devices are held by one or the other
        ([*JOBS[:2], job("late", SMALL, 300, (50,), 10)], 350),  # nothing can be over before it
    ],
)
def test_no_schedule_ends_before_the_longest_job_or_what_is_held(jobs: list[Job], bound_s: float) -> None:
    assert figures(jobs, World(jobs, Rules()).run()).bound_s == pytest.approx(bound_s)


@pytest.mark.parametrize(
    "of", [lambda found: found.duty, lambda found: found.makespan_s, lambda found: found.saved_device_s]
)
def test_jobs_without_turns_have_figures_too(of: Callable[[object], float]) -> None:
    nothing = [job("A", SMALL, 0, (), 1)]

    assert of(figures(nothing, World(nothing, Rules()).run())) == 0
