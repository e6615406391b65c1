"""How many lasting calls one user, or one job, may have under way: others want their turns of the loop."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Hashable, Iterator

from slurm_interleave.client.core.errors import TooMany


class Shares:
    """Calls under way, by whose they are."""

    def __init__(self, most: int, what: str) -> None:
        """Nobody may have more than *most* of *what*."""
        self._most = most
        self._what = what
        self._open: Counter[Hashable] = Counter()

    @contextlib.contextmanager
    def one_of(self, whose: Hashable) -> Iterator[None]:
        """Count a call while it lasts. Raises `TooMany`."""
        if self._open[whose] >= self._most:
            raise TooMany(
                f"{whose} has {self._most} {self._what} under way, which is all that one may have; "
                "try again when one of them has ended"
            )
        self._open[whose] += 1
        try:
            yield
        finally:
            self._open[whose] -= 1
            if not self._open[whose]:
                del self._open[whose]
