"""The most that jobs can hold a pool by any order of their turns, as a bound for policies.

Nobody can do better, even knowing all lengths beforehand: each job's holds keep their order, and a switch
takes its time. A job with batches in stock has each as early as if it had never waited, and room for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from best_order import NOBODY, least, put_at

GRID_S = 1.0  # times are rounded down to it, in favour of the bound


class Turn(NamedTuple):
    """A hold of a job, and for how long the job is away before it, in seconds."""

    away_s: float
    held_s: float


@dataclass(frozen=True)
class Member:
    """The turns of a job as they are alone; *stocked*: it is away whether it holds or not."""

    turns: Sequence[Turn]
    stocked: bool

    @cached_property
    def held_s(self) -> Sequence[float]:
        """What so many turns take."""
        return tuple(accumulate((turn.held_s for turn in self.turns), initial=0.0))

    @cached_property
    def batches(self) -> Sequence[float]:
        """When each turn may begin at the earliest, if it waits for its batch alone."""
        return tuple(accumulate(turn.away_s for turn in self.turns))


class State(NamedTuple):
    """How many turns each job has had, and who had the last one."""

    had: tuple[int, ...]
    last: int


# When the pool is free, then when each job asks, not before that.
Times = tuple[float, ...]


def most_busy(members: Sequence[Member], seconds: float, switch_s: float) -> float:
    """Return for which part of the first *seconds* the pool can be held; all have turns until then.

    Where each job has had as many turns the pool was held as long, in whatever order: only those orders are
    followed that no other one is before in everything.
    """
    asks = tuple(member.turns[0].away_s for member in members)
    front: dict[State, list[Times]] = {State((0,) * len(members), NOBODY): [(0.0, *asks)]}
    most = 0.0
    while front:
        reached: dict[State, list[Times]] = {}
        for state, known in front.items():
            held_s = sum(member.held_s[count] for member, count in zip(members, state.had, strict=True))
            for who, member in enumerate(members):
                turn = member.turns[state.had[who]]
                move_s = 0.0 if state.last in (NOBODY, who) else switch_s
                after = State(put_at(state.had, who, state.had[who] + 1), who)
                for times in known:
                    begun = max(times[0] + move_s, times[1 + who])
                    ended = begun + turn.held_s
                    if begun < seconds:
                        most = max(most, held_s + min(ended, seconds) - begun)
                    if ended < seconds:
                        reached.setdefault(after, []).append(_after(times, member, after, ended))
        front = {state: least(times) for state, times in reached.items()}
    return most / seconds


def _after(times: Times, member: Member, state: State, ended: float) -> Times:
    number = state.had[state.last]
    asks = member.batches[number] if member.stocked else ended + member.turns[number].away_s
    free = _down(ended)
    return (free, *(max(free, at) for at in put_at(times[1:], state.last, _down(asks))))


def _down(at: float) -> float:
    return at // GRID_S * GRID_S
