"""How a group stands, in the words of the v1alpha1 service and of `interleave status`."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from enum import Enum

from slurm_interleave.client.core.states import Context
from slurm_interleave.orchestrator.core.state import State
from slurm_interleave.sql.rows import Key


class GroupState(str, Enum):
    """One group, seen as one lock."""

    UNKNOWN = "unknown"  # an agent is away, so the truth is not known
    IDLE = "idle"  # lock free, no context on a device
    WARM = "warm"  # lock free, the last holder's context still on its devices
    LOCKED = "locked"  # lock held, context loaded
    SWITCHING = "switching"  # lock taken, context not loaded yet


@dataclass(frozen=True)
class GroupView:
    """A group as one lock: who has it, whose context is wanted and whose is loaded; "" for nobody."""

    state: GroupState
    locking: str
    active: str
    loaded: str
    waiting: int


@dataclass
class _Tally:
    """Which members of a group are what, in the order in which they came to be so."""

    holding: dict[Key, None] = field(default_factory=dict)
    coming: dict[Key, None] = field(default_factory=dict)  # their switch is under way
    resident: dict[Key, None] = field(default_factory=dict)
    waiting: dict[Key, None] = field(default_factory=dict)
    unclear: dict[Key, None] = field(default_factory=dict)

    def view(self) -> GroupView:
        """Return the group as one lock."""
        holder, coming, resident = map(_first, (self.holding, self.coming, self.resident))
        loaded = holder if holder in self.resident else resident
        locking = holder or coming
        return GroupView(
            state=self.state(),
            locking=_job(locking),
            active=_job(locking or resident),
            loaded=_job(loaded),
            waiting=len(self.waiting) - bool(coming),
        )

    def state(self) -> GroupState:
        """Return the same in one word."""
        if self.holding:
            return GroupState.LOCKED if _first(self.holding) in self.resident else GroupState.SWITCHING
        if self.coming:
            return GroupState.SWITCHING
        if self.unclear:
            return GroupState.UNKNOWN
        return GroupState.WARM if self.resident else GroupState.IDLE


class Standings:
    """How all groups stand and since when, kept by looking at the members that changed and at no others."""

    def __init__(self, state: State, switching: Container[Key]) -> None:
        """*switching* are those whose switch is under way."""
        self._state = state
        self._switching = switching
        self._tallies: dict[str, _Tally] = {}
        self._since: dict[str, tuple[GroupState, float]] = {}

    def view(self, group: str) -> GroupView:
        """Return *group* as one lock."""
        return self._tallies.get(group, _Tally()).view()

    def since(self, group: str) -> tuple[GroupState, float]:
        """Return how *group* stands and since when."""
        return self._since.get(group, (GroupState.IDLE, 0.0))

    def update(self, changed: Iterable[Key], at: float) -> list[str]:
        """Look at the members that *changed*; return their groups."""
        groups: dict[str, None] = {}
        for key in changed:
            groups[key.group] = None
            self._look(key)
        for group in groups:
            if group not in self._state.groups:
                self._tallies.pop(group, None)
                self._since.pop(group, None)
                continue
            now = self._tallies[group].state()
            if group not in self._since or self._since[group][0] is not now:
                self._since[group] = (now, at)
        return list(groups)

    def _look(self, key: Key) -> None:
        state, tally = self._state, self._tallies.setdefault(key.group, _Tally())
        claim, parts = state.claims.get(key), state.parts.get(key, {})
        resident, unclear = bool(parts), False
        for part in parts.values():
            resident = resident and part.context is Context.RESIDENT
            unclear = unclear or part.context is Context.UNKNOWN or part.node not in state.nodes_up
        _put(tally.holding, key, key in state.leases)
        _put(tally.waiting, key, claim is not None)
        _put(tally.coming, key, claim is not None and claim in self._switching)
        _put(tally.resident, key, resident)
        _put(tally.unclear, key, unclear)


def _put(members: dict[Key, None], key: Key, belongs: bool) -> None:
    if belongs:
        members[key] = None
    elif key in members:
        del members[key]


def _first(members: dict[Key, None]) -> Key | None:
    return next(iter(members), None)


def _job(key: Key | None) -> str:
    return key.job_id if key is not None else ""
