"""The leases that a process holds, and the turns that are on them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from slurm_interleave.client.ask import Lease


class Held:
    """By group: the lease, how many turns are entered, and whether the first of them took the lease."""

    def __init__(self) -> None:
        self.lock = threading.Lock()  # held for moments, never over a call
        self._leases: dict[str, Lease] = {}
        self._depth: dict[str, int] = {}
        self._by_turn: dict[str, bool] = {}

    def __contains__(self, group: str) -> bool:
        return group in self._leases

    def __getitem__(self, group: str) -> Lease:
        return self._leases[group]

    def groups(self) -> list[str]:
        """Return the groups whose devices are held."""
        return list(self._leases)

    def lease(self, group: str) -> Lease | None:
        """Return the lease of *group*, else the first, else None."""
        leases = dict(self._leases)
        return leases.get(group) or next(iter(leases.values()), None)

    def take(self, lease: Lease) -> None:
        """Hold what was granted."""
        epochs = {lease.group: lease.epoch, **lease.also}
        self._leases.update(
            {
                group: replace(
                    lease,
                    group=group,
                    epoch=epoch,
                    also={other: e for other, e in epochs.items() if other != group},
                )
                for group, epoch in epochs.items()
            }
        )

    def drop(self, groups: Sequence[str] | None) -> dict[str, Lease]:
        """Hold *groups* (None: any) no more; return their leases."""
        wanted = (
            list(self._leases) if groups is None else [group for group in groups if group in self._leases]
        )
        return {group: self._leases.pop(group) for group in wanted}

    def enter(self, groups: Sequence[str], before: Sequence[str]) -> None:
        """Enter a turn; *before* it these groups were held."""
        for group in groups:
            if not self._depth.get(group):
                self._by_turn[group] = group not in before
            self._depth[group] = self._depth.get(group, 0) + 1

    def leave(self, groups: Sequence[str]) -> list[str]:
        """Leave a turn; return the groups that are to be yielded. A fork's parent's is none."""
        over = []
        for group in groups:
            depth = self._depth.get(group, 0)
            self._depth[group] = max(depth - 1, 0)
            if depth == 1 and self._by_turn[group]:
                over.append(group)
        return over
