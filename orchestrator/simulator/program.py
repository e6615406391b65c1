"""What a simulated job does: a generator that says its next step and is told when that is done.

All times are seconds of the virtual clock. A job may compute its next step from that, as a real one does.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """What it takes to move a context of a job, on each node, in seconds."""

    snapshot_s: float = 0.0
    restore_s: float = 0.0


@dataclass(frozen=True)
class Until:
    """Work, or wait, till *at*; a time that has passed is now."""

    at: float


@dataclass(frozen=True)
class Acquire:
    """Ask for the devices of a pool; done when granted."""

    pool: str
    phase: str = ""


@dataclass(frozen=True)
class Yield:
    """Give a pool up; done at once. *cost*: what its context costs to move from now on, if that changes."""

    pool: str
    cost: Cost | None = None


Step = Until | Acquire | Yield
Program = Generator[Step, float, None]


@dataclass(frozen=True)
class Place:
    """Where a job's part in a pool is: these devices on each of these nodes."""

    nodes: tuple[str, ...]
    devices: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Job:
    """A job: when it starts, where its pools are, what its contexts cost, and what it does."""

    name: str
    pools: Mapping[str, Place]
    program: Callable[[float], Program]
    cost: Cost = Cost()
    start_s: float = 0.0
    account: str = ""


@dataclass(frozen=True)
class Alone:
    """How a job goes with devices of its own: no waits, no switches."""

    seconds: float
    held_s: Mapping[str, float]
    """By pool."""

    def share(self, pool: str) -> float:
        """Return which part of its time the job needs *pool*: b / P."""
        return self.held_s.get(pool, 0.0) / self.seconds if self.seconds else 0.0


def alone(job: Job) -> Alone:
    """Run *job* by itself."""
    now, since, held = job.start_s, dict[str, float](), dict.fromkeys(job.pools, 0.0)
    program = job.program(now)
    try:
        step = next(program)
        while True:
            if isinstance(step, Until):
                now = max(now, step.at)
            elif isinstance(step, Acquire):
                since[step.pool] = now
            else:
                held[step.pool] += now - since.pop(step.pool)
            step = program.send(now)
    except StopIteration:
        return Alone(now - job.start_s, held)
