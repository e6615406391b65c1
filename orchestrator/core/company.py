"""With whom a member shared its devices during a turn and the time before it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from slurm_interleave.sql.rows import Key

# So many are remembered on a device; who has more partners is told fewer, and saves less by that.
_LOOKED_AT = 32


@dataclass(frozen=True)
class Shared:
    """A turn's `off_s`, `share` and `partners`, as a slice has them."""

    off_s: float = 0.0
    share: float = 0.0
    partners: tuple[str, ...] = ()


UNSHARED = Shared()


class Company:
    """Who had turns on each device, the last one last. Kept in memory: a restart forgets it."""

    def __init__(self) -> None:
        self._turns: dict[Hashable, dict[Key, float]] = {}
        self._ended: dict[Key, float] = {}

    def ended(self, key: Key, devices: Sequence[Hashable], requested: float, at: float) -> Shared:
        """A turn of *key* has ended; return with whom it shared *devices* since the end of its last one."""
        before = self._ended.get(key)
        began = requested if before is None else min(before, requested)
        found = [list(self._others(key, device, began)) for device in devices]
        for device in devices:
            turns = self._turns.setdefault(device, {})
            turns.pop(key, None)
            turns[key] = at
            if len(turns) > _LOOKED_AT:
                del turns[next(iter(turns))]
        self._ended[key] = at
        jobs = dict.fromkeys(other.job_id for others in found for other in others)
        jobs.pop(key.job_id, None)
        share = sum(1 / (1 + len(others)) for others in found)
        return Shared(requested - began, share, tuple(sorted(jobs)))

    def forget(self, key: Key) -> None:
        """A member is gone; who shared with it remembers that."""
        self._ended.pop(key, None)

    def _others(self, key: Key, device: Hashable, since: float) -> Iterator[Key]:
        """Return who else ended a turn on *device* after *since*."""
        turns = self._turns.get(device, {})
        for other in reversed(turns):
            if turns[other] <= since:
                return
            if other != key:
                yield other
