"""Learned lengths: how long a member holds its devices and leaves them alone, and what its switches take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from slurm_interleave.sql.rows import Key

_KEPT = 5  # observations
_PHASES = 8  # of a member, by name: who gives each phase a new name has one length for all
_ANY = ""
Lengths = tuple[float, ...]  # the newest, in seconds


class Usual(NamedTuple):
    """What is usual: the median, so that one long break changes nothing.

    *longest_s* is what is long, but not unheard of: the longest but one.
    """

    usual_s: float
    longest_s: float


def _usual(lengths: Lengths) -> Usual | None:
    ordered = sorted(lengths)
    return Usual(ordered[len(ordered) // 2], ordered[-2:][0]) if ordered else None


@dataclass
class _Habit:
    yielded: float = 0.0
    paused: bool = False  # it comes back at once, and its phase goes on
    held_s: float = 0.0  # of that phase so far
    offs: Lengths = ()  # from a yield to the next acquire
    switches: Lengths = ()  # wall time of those before its grants
    holds: dict[str, Lengths] = field(default_factory=dict)  # by phase, and of all phases as `_ANY`


class Habits:
    """What is usual, by member. Times and lengths in seconds."""

    def __init__(self) -> None:
        self._habits: dict[Key, _Habit] = {}

    def acquired(self, key: Key, at: float) -> None:
        """A member asks for its devices again."""
        habit = self._habits.setdefault(key, _Habit())
        if habit.yielded and not habit.paused:
            habit.offs = _with(habit.offs, at - habit.yielded)
        habit.yielded, habit.paused = 0.0, False

    def yielded(self, key: Key, at: float, *, paused: bool = False) -> None:
        """A member gave its devices up; *paused*: at a safe point, to go on as soon as it may."""
        habit = self._habits.setdefault(key, _Habit())
        habit.yielded, habit.paused = at, paused

    def held(
        self, key: Key, phase: str, held_s: float, switch_s: float | None, *, paused: bool = False
    ) -> None:
        """A lease ended; *switch_s*: the wall time of the switch before it, if there was one.

        After a pause the phase goes on, and is as long as all its leases together.
        """
        habit = self._habits.setdefault(key, _Habit())
        if switch_s is not None:
            habit.switches = _with(habit.switches, switch_s)
        habit.held_s = held_s = habit.held_s + held_s
        if paused:
            return
        habit.held_s = 0.0
        for name in {phase, _ANY}:
            habit.holds[name] = _with(habit.holds.pop(name, ()), held_s)
        if len(habit.holds) > _PHASES:
            del habit.holds[next(name for name in habit.holds if name != _ANY)]

    def forget(self, key: Key) -> None:
        """A member is gone."""
        self._habits.pop(key, None)

    def hold(self, key: Key, phase: str) -> Usual | None:
        """Return how long the member holds for *phase*; where that is new, how long for any."""
        holds = self._habits.get(key, _Habit()).holds
        return _usual(holds.get(phase) or holds.get(_ANY, ()))

    def held_before_s(self, key: Key) -> float:
        """Return for how long the member held in this phase before its last pause."""
        return self._habits.get(key, _Habit()).held_s

    def switch(self, key: Key) -> Usual | None:
        """Return what a switch to the member takes."""
        return _usual(self._habits.get(key, _Habit()).switches)

    def next_acquire(self, key: Key, now: float) -> float | None:
        """Return when the member will ask again by its habit, or None if that is not known.

        Who has stayed away twice as long as it does at times has another habit now, which is not known.
        """
        habit = self._habits.get(key)
        if habit is not None and habit.paused:
            return habit.yielded
        off = _usual(habit.offs) if habit is not None and habit.yielded else None
        if habit is None or off is None:
            return None
        return habit.yielded + off.usual_s if now - habit.yielded <= 2 * off.longest_s else None

    def another_comes_first(self, key: Key, others: Iterable[Key], now: float) -> bool:
        """Tell whether one of *others* is expected to ask before *key* does."""
        own = self.next_acquire(key, now)
        if own is None:
            return False
        expected = [self.next_acquire(other, now) for other in others]
        return any(at is not None and at < own for at in expected)


def _with(lengths: Lengths, newest: float) -> Lengths:
    return (*lengths, max(newest, 0.0))[-_KEPT:]
