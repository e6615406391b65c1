"""Learned phase lengths: how long a member leaves its devices alone, and so who will want them next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from slurm_interleave.sql.rows import Key

_WEIGHT = 0.3  # of the newest observation


@dataclass
class _Habit:
    yielded: float = 0.0
    off_s: float | None = None  # from a yield to the next acquire


class Habits:
    """Exponentially weighted means, by member. Times and lengths in seconds."""

    def __init__(self) -> None:
        self._habits: dict[Key, _Habit] = {}

    def acquired(self, key: Key, at: float) -> None:
        """A member asks for its devices again."""
        habit = self._habits.setdefault(key, _Habit())
        if habit.yielded:
            habit.off_s = _mean(habit.off_s, at - habit.yielded)
            habit.yielded = 0.0

    def yielded(self, key: Key, at: float) -> None:
        """A member gave its devices up."""
        self._habits.setdefault(key, _Habit()).yielded = at

    def forget(self, key: Key) -> None:
        """A member is gone."""
        self._habits.pop(key, None)

    def next_acquire(self, key: Key) -> float | None:
        """Return when the member will ask again by its habit, or None if that is not known."""
        habit = self._habits.get(key)
        if habit is None or not habit.yielded or habit.off_s is None:
            return None
        return habit.yielded + habit.off_s

    def another_comes_first(self, key: Key, others: Iterable[Key]) -> bool:
        """Tell whether one of *others* is expected to ask before *key* does."""
        own = self.next_acquire(key)
        if own is None:
            return False
        expected = [at for at in map(self.next_acquire, others) if at is not None]
        return any(at < own for at in expected)


def _mean(before: float | None, now: float) -> float:
    return now if before is None else before + _WEIGHT * (now - before)
