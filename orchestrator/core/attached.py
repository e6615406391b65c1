"""Who waits for the answer of a call: which member each stands for, who listens, who is away."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import NamedTuple

from slurm_interleave.orchestrator.core.events import CallId
from slurm_interleave.sql.rows import Key


class Asker(NamedTuple):
    """Who waits: *name* and *alone* are as `heard_by` and `alone` of a lease."""

    name: str = ""
    alone: bool = False
    held: frozenset[Key] = frozenset()  # members that he asked for, and that his job held already


class Attached:
    """The calls that are attached to each member: they wait for it, or were answered by its lease."""

    def __init__(self) -> None:
        self._of: dict[Key, set[CallId]] = {}
        self._members: dict[CallId, Key] = {}
        self.listeners: set[CallId] = set()  # who wait and are told their places
        self.away: dict[CallId, bool] = {}  # who are expected back; whether they are passed over

    def __contains__(self, call: CallId) -> bool:
        return call in self._members

    def of(self, key: Key) -> Set[CallId]:
        """Return the calls of a member."""
        return self._of.get(key, frozenset())

    def member(self, call: CallId) -> Key | None:
        """Return the member that *call* stands for."""
        return self._members.get(call)

    def add(self, key: Key, calls: Iterable[CallId]) -> None:
        """Note that *calls* wait for *key*, or were answered by its lease."""
        for call in calls:
            self._of.setdefault(key, set()).add(call)
            self._members[call] = key

    def drop(self, call: CallId) -> Key | None:
        """Forget *call*; return the member that it stood for."""
        key = self._forget(call)
        if key is not None:
            self._of[key].discard(call)
        return key

    def drop_all(self, key: Key) -> frozenset[CallId]:
        """Forget the calls of a member; return them."""
        calls = frozenset(self._of.pop(key, ()))
        for call in calls:
            self._forget(call)
        return calls

    def _forget(self, call: CallId) -> Key | None:
        self.listeners.discard(call)
        self.away.pop(call, None)
        return self._members.pop(call, None)
