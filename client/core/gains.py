"""What sharing gained or cost, in device-seconds, of one turn; all of it adds up over turns.

A turn's *cycle* goes from the end of the job's last turn to the end of this one: first the job is off its
devices (`off_s`), then it waits (`waited_s`, the switch included), then it holds them (`held_s`). The first
cycle begins with the first request. With d devices:

- held: d * held_s.
- exclusive: d * (off_s + held_s). A job with devices of its own would not have waited, and would have kept
  them while it was off them.
- occupied: share * (off_s + waited_s + held_s). Each device is divided by the number of jobs that had turns
  on it within the cycle, so all jobs together occupied a device for as long as it was taken.
- shared: d * (off_s + waited_s + held_s) - occupied, what the partners occupied of the cycle.
- saved: exclusive - occupied. Below 0, sharing lost: waiting and switches cost more than the partners gave.
- duty cycle before: held / exclusive; after: held / occupied.

What is before a job's first request and behind its last turn is not counted, nor is a partner that had no
turn within the cycle: both make the savings smaller than they are, not larger.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Gain(NamedTuple):
    """Device-seconds of one turn, or of many."""

    held: float
    waited: float
    exclusive: float
    occupied: float

    @property
    def saved(self) -> float:
        """What a job with devices of its own would have occupied more; below 0 it lost."""
        return self.exclusive - self.occupied

    @property
    def shared(self) -> float:
        """Of the time of its turns, what its partners occupied."""
        return self.exclusive + self.waited - self.occupied


def gain(devices: int, *, off_s: float, waited_s: float, held_s: float, share: float) -> Gain:
    """Return the device-seconds of a turn; where *share* is 0, not known, it neither gains nor loses."""
    held = devices * held_s
    if not share:
        return Gain(held, devices * waited_s, held, held)
    return Gain(
        held=held,
        waited=devices * waited_s,
        exclusive=devices * (off_s + held_s),
        occupied=share * (off_s + waited_s + held_s),
    )


def total(gains: Iterable[Gain]) -> Gain:
    """Return the sum of *gains*."""
    held = waited = exclusive = occupied = 0.0
    for one in gains:
        held, waited = held + one.held, waited + one.waited
        exclusive, occupied = exclusive + one.exclusive, occupied + one.occupied
    return Gain(held, waited, exclusive, occupied)


def part(value: float, whole: float) -> float | None:
    """Return *value* as a part of *whole*; None if there is no whole."""
    return value / whole if whole > 0 else None
