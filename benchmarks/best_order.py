"""The shortest makespan of two jobs by any order of their calls, as a bound for policies.

Each job's calls keep their order and the times between them. A snapshot begins at the yield and hurts nobody;
a restore may be over before the next holder asks. No orchestrator can do better with the same moves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from slurm_interleave.orchestrator.simulator.program import Acquire, Cost, Job, Until, Yield

NOBODY = -1
T = TypeVar("T")


class Call(NamedTuple):
    """A call of a job: so long after the last one was done, on this pool."""

    after_s: float
    pool: int
    cost: Cost | None  # of a yield; None: an acquire
    restore_s: float = 0.0  # before an acquire, if another had the pool


@dataclass(frozen=True)
class State:
    """How far both jobs are, and who had and has each pool."""

    done: tuple[int, int]
    last: tuple[int, ...]
    holders: tuple[int, ...]


# When each job's last call was done, then for each pool its last yield, and the end of the snapshot after it.
Times = tuple[float, ...]


def calls_of(job: Job, pools: list[str]) -> list[Call]:
    """Return what *job* calls when it never waits."""
    now, done = job.start_s, job.start_s
    calls: list[Call] = []
    restore = dict.fromkeys(pools, 0.0)
    program = job.program(now)
    step = next(program)
    while True:
        if isinstance(step, Until):
            now = max(now, step.at)
        elif isinstance(step, Acquire):
            calls.append(Call(now - done, pools.index(step.pool), None, restore[step.pool]))
            done = now
        elif isinstance(step, Yield):
            cost = step.cost or job.cost
            calls.append(Call(now - done, pools.index(step.pool), cost))
            restore[step.pool], done = cost.restore_s, now
        try:
            step = program.send(now)
        except StopIteration:
            return calls


def shortest_s(one: Job, other: Job) -> float:
    """Return when the later of two jobs can be done, from the first grant on, in seconds."""
    pools = sorted({*one.pools, *other.pools})
    calls = (calls_of(one, pools), calls_of(other, pools))
    starts = (one.start_s, other.start_s)
    none = (NOBODY,) * len(pools)
    front: dict[State, list[Times]] = {State((0, 0), none, none): [(*starts, *[0.0] * (2 * len(pools)))]}
    for _ in range(len(calls[0]) + len(calls[1])):
        reached: dict[State, list[Times]] = {}
        for state, known in front.items():
            for after, times in _steps(state, known, calls):
                reached.setdefault(after, []).append(times)
        front = {state: least(times) for state, times in reached.items()}
    begin = min(start + own[0].after_s for start, own in zip(starts, calls, strict=True))
    return min(max(times[:2]) for found in front.values() for times in found) - begin


def _steps(
    state: State, known: list[Times], calls: tuple[list[Call], list[Call]]
) -> Iterator[tuple[State, Times]]:
    for who in (0, 1):
        if state.done[who] == len(calls[who]):
            continue
        call = calls[who][state.done[who]]
        wanted = NOBODY if call.cost is None else who
        if state.holders[call.pool] != wanted:
            continue
        done = (state.done[0] + (who == 0), state.done[1] + (who == 1))
        last = put_at(state.last, call.pool, who)
        after = State(done, last, put_at(state.holders, call.pool, who if call.cost is None else NOBODY))
        for times in known:
            yield after, _times(state, times, who, call)


def _times(state: State, times: Times, who: int, call: Call) -> Times:
    found, place = list(times), 2 + 2 * call.pool
    now = found[who] + call.after_s
    if call.cost is not None:
        found[place], found[place + 1] = now, now + call.cost.snapshot_s
    elif state.last[call.pool] == who:
        now = max(now, found[place])
    elif state.last[call.pool] != NOBODY:
        now = max(now, found[place + 1] + call.restore_s)
    found[who] = now
    return tuple(found)


def put_at(values: tuple[T, ...], place: int, value: T) -> tuple[T, ...]:
    """Return *values* with another one at *place*."""
    return (*values[:place], value, *values[place + 1 :])


def least(found: list[Times]) -> list[Times]:
    """Keep those that no other is before in everything."""
    kept: list[Times] = []
    for times in sorted(set(found)):
        if not any(all(a <= b for a, b in zip(other, times, strict=True)) for other in kept):
            kept.append(times)
    return kept
