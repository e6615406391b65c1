"""Figures: percentiles, medians over rounds, and the goals they are held against."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Result = dict[str, Any]


@dataclass(frozen=True)
class Spread:
    """Half of a sample, and 99 of 100, took no longer."""

    p50: float
    p99: float


def seconds(work: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """Return how long *work* took by *clock*.

    By default processor time: copies in memory are one thread's work, and what else runs is not to count.
    """
    began = clock()
    work()
    return clock() - began


def spread(values: Sequence[float]) -> Spread:
    """Return p50 and p99 of *values*."""
    ordered = sorted(values)
    last = len(ordered) - 1
    return Spread(ordered[min(last, len(ordered) // 2)], ordered[min(last, int(len(ordered) * 0.99))])


@dataclass(frozen=True)
class Goal:
    """A line of the table: what the figures of one round give, and the limit."""

    what: str
    unit: str
    limit: float
    value: Callable[[Result], float]
    at_least: bool = False

    def met(self, value: float) -> bool:
        """Tell whether *value* is on the right side."""
        return value >= self.limit if self.at_least else value <= self.limit


def _ratio(key: str, part: str, below: str) -> Callable[[Result], float]:
    """Return *part* of a figure divided by the p50 of another."""
    return lambda figures: float(getattr(figures[key], part) / figures[below].p50)


GOALS = (
    Goal("uncontended warm acquire, p50", "x RTT", 2, _ratio("acquire_warm_us", "p50", "rtt_us")),
    Goal("uncontended warm acquire, p99", "x RTT", 10, _ratio("acquire_warm_us", "p99", "rtt_us")),
    Goal("handover, p50", "x RTT", 5, _ratio("handover_us", "p50", "rtt_us")),
    Goal("handover, p99", "x RTT", 20, _ratio("handover_us", "p99", "rtt_us")),
    Goal(
        "handovers a second, 200 groups of 2",
        "x empty calls",
        1 / 8,
        lambda figures: float(figures["handovers_per_s"] / figures["empty_calls_per_s"]),
        at_least=True,
    ),
    Goal(
        "handover among 1,000 groups, 10,000 members",
        "x 1 group of 2",
        1.5,
        _ratio("handover_1000_groups_us", "p50", "handover_small_us"),
    ),
    *(
        Goal(
            f"handover with 1,000 waiters, {policy}",
            "x 1 waiter",
            2,
            _ratio(f"handover_1000_waiters{key}_us", "p50", "handover_small_us"),
        )
        for policy, key in (
            ("fifo", ""),
            ("priority", "_priority"),
            ("fair-share", "_fair_share"),
            ("least-switching", "_least_switching"),
        )
    ),
    Goal(
        "handover beside 100 busy groups, one operation stuck",
        "x none stuck",
        1.5,
        _ratio("handover_beside_stuck_us", "p50", "handover_beside_busy_us"),
    ),
    Goal("resident memory, 10,000 members", "MiB", 250, lambda figures: figures["rss_10000_members_mib"]),
    Goal("restart to first grant, 1,000 groups", "s", 2, lambda figures: figures["restart_1000_groups_s"]),
)


def merged(rounds: Sequence[Result]) -> Result:
    """Return the median of each figure over *rounds*, ready for JSON."""
    figures: Result = {}
    for key, first in rounds[0].items():
        if isinstance(first, Spread):
            figures[key] = {
                part: round(statistics.median(getattr(r[key], part) for r in rounds), 1)
                for part in vars(first)
            }
        else:
            figures[key] = round(statistics.median(r[key] for r in rounds), 3)
    return figures


def reached(rounds: Sequence[Result]) -> list[tuple[Goal, float]]:
    """Return each goal with the median of the rounds: what else ran then hits both sides of a ratio."""
    return [(goal, statistics.median(goal.value(figures) for figures in rounds)) for goal in GOALS]


def table(figures: Result, values: Sequence[tuple[Goal, float]]) -> str:
    """Return all of it for people."""
    lines = [f"{'goal':<46} {'measured':>10} {'limit':>10}"]
    for goal, value in values:
        limit = f"{'>=' if goal.at_least else '<='} {goal.limit:g}"
        word = "pass" if goal.met(value) else "FAIL"
        lines.append(f"{goal.what:<46} {value:>10.3g} {limit:>10}  {goal.unit:<15} {word}")
    lines += ["", f"{'figure':<46} {'p50':>10} {'p99':>10}"]
    for key, value in figures.items():
        cells = [value["p50"], value["p99"]] if isinstance(value, dict) else [value]
        lines.append(f"{key:<46}" + "".join(f" {cell:>10,}" for cell in cells))
    return "\n".join(lines)
