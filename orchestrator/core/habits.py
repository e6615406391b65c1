"""Learned phase lengths: how long a member leaves its devices alone, and so who will want them next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from slurm_interleave.sql.rows import Key

_KEPT = 5  # observations


@dataclass
class _Habit:
    yielded: float = 0.0
    offs_s: tuple[float, ...] = ()  # the newest lengths from a yield to the next acquire

    def off_s(self) -> float:
        """Return what is usual: the median, so that one long break changes nothing."""
        return sorted(self.offs_s)[len(self.offs_s) // 2]

    def longest_s(self) -> float:
        """Return what is long, but not unheard of: the longest but one."""
        return sorted(self.offs_s)[-2:][0]


class Habits:
    """What is usual, by member. Times and lengths in seconds."""

    def __init__(self) -> None:
        self._habits: dict[Key, _Habit] = {}

    def acquired(self, key: Key, at: float) -> None:
        """A member asks for its devices again."""
        habit = self._habits.setdefault(key, _Habit())
        if habit.yielded:
            habit.offs_s = (*habit.offs_s, at - habit.yielded)[-_KEPT:]
            habit.yielded = 0.0

    def yielded(self, key: Key, at: float) -> None:
        """A member gave its devices up."""
        self._habits.setdefault(key, _Habit()).yielded = at

    def forget(self, key: Key) -> None:
        """A member is gone."""
        self._habits.pop(key, None)

    def next_acquire(self, key: Key, now: float) -> float | None:
        """Return when the member will ask again by its habit, or None if that is not known.

        Who has stayed away twice as long as it does at times has another habit now, which is not known.
        """
        habit = self._habits.get(key)
        if habit is None or not habit.yielded or not habit.offs_s:
            return None
        away_s = now - habit.yielded
        return habit.yielded + habit.off_s() if away_s <= 2 * habit.longest_s() else None

    def another_comes_first(self, key: Key, others: Iterable[Key], now: float) -> bool:
        """Tell whether one of *others* is expected to ask before *key* does."""
        own = self.next_acquire(key, now)
        if own is None:
            return False
        expected = [self.next_acquire(other, now) for other in others]
        return any(at is not None and at < own for at in expected)
