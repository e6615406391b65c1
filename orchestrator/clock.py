"""A clock for spans of time that shows the time of day too."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from functools import partial

log = logging.getLogger(__name__)
# A step of the system's clock up to this counts at once, as one does that NTP makes; a larger one is followed
# by so many seconds a second.
_SMALL_S = 0.5
_FOLLOWS = 0.02
# It goes on while the host sleeps, as the nodes do.
_since_boot = partial(time.clock_gettime, time.CLOCK_BOOTTIME)


class SteadyClock:
    """Seconds since the Unix epoch that never go back, and that no step of the system's clock makes leap.

    What lasts, waits or is due is measured by it, and a step would end leases and make spans negative. It
    follows the system's clock slowly, so that reports have the time of day again; a restart does so at once.
    """

    def __init__(
        self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = _since_boot
    ) -> None:
        self._wall, self._steady = wall, steady
        self._last = steady(), wall()  # one value, since threads ask too
        self._ahead = 0.0

    def __call__(self) -> float:
        """Return the time."""
        wall, steady = self._wall(), self._steady()
        then, shown = self._last
        passed = steady - then
        ahead = wall - (shown + passed)
        if abs(ahead) <= _SMALL_S:
            now = max(shown, wall)
        else:
            now = shown + passed + math.copysign(min(passed * _FOLLOWS, abs(ahead)), ahead)
        if abs(ahead - self._ahead) > _SMALL_S:
            self._tell(ahead)
        self._last, self._ahead = (steady, now), wall - now
        return now

    def _tell(self, ahead: float) -> None:
        follows = {"seconds": round(ahead, 3), "followed_in": round(abs(ahead) / _FOLLOWS)}
        log.warning("clock.stepped", extra={**follows, "todo": "restart interleaved to follow at once"})
