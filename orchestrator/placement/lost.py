"""Which nodes jobs cannot start on: Slurm starts none there, or their agent is away for too long."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

# Words of a state of sinfo (`draining@`) or pyslurm (`mixed+drain`). Jobs start where it is `powered_down`.
_CLOSED = re.compile(r"\b(down|drain\w*|fail\w*|inval\w*|reboot\w*)\b")


def closed(states: Mapping[str, str]) -> frozenset[str]:
    """Return the nodes on which Slurm starts no job, of the states of all."""
    return frozenset(name for name, state in states.items() if _CLOSED.search(state))


class AwayNodes:
    """Remembers since when each node's agent is away. A restart of this daemon starts anew."""

    def __init__(self, away_s: float, clock: Callable[[], float]) -> None:
        self._away_s, self._clock = away_s, clock
        self._since: dict[str, float] = {}

    def update(self, wanted: Iterable[str], connected: Iterable[str]) -> frozenset[str]:
        """Return those of the nodes *wanted* whose agent has been away for more than `away_s` seconds.

        Called in each round, since it counts from the first call that finds the agent away.
        """
        now, missing = self._clock(), set(wanted) - set(connected)
        self._since = {node: self._since.get(node, now) for node in missing}
        return frozenset(node for node, since in self._since.items() if now - since > self._away_s)
