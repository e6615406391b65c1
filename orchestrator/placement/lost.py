"""Which nodes jobs cannot start on: down in Slurm, or without their agent for too long."""

from __future__ import annotations

from collections.abc import Callable, Iterable


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
