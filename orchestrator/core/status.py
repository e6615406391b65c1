"""How a group stands, in the words of the v1alpha1 service and of `interleave status`."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
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


def view(state: State, switching: Container[Key], group: str) -> GroupView:
    """Return how *group* stands, *switching* being those whose switch is under way."""
    members = list(state.groups.get(group, ()))
    holder = next((key for key in members if key in state.leases), None)
    coming = next((key for key in members if state.claims.get(key) in switching), None)
    resident = next((key for key in members if _resident(state, key)), None)
    locking = holder or coming
    waiting = sum(1 for key in members if key in state.claims and key != coming)
    loaded = holder if holder and _resident(state, holder) else resident
    return GroupView(
        state=_state(state, members, locking, loaded),
        locking=_job(locking),
        active=_job(locking or resident),
        loaded=_job(loaded),
        waiting=waiting,
    )


def _state(state: State, members: list[Key], locking: Key | None, loaded: Key | None) -> GroupState:
    if locking is not None:
        return GroupState.LOCKED if loaded == locking else GroupState.SWITCHING
    parts = [part for key in members for part in state.parts.get(key, {}).values()]
    if any(part.context is Context.UNKNOWN or part.node not in state.nodes_up for part in parts):
        return GroupState.UNKNOWN
    return GroupState.WARM if loaded is not None else GroupState.IDLE


def _resident(state: State, key: Key) -> bool:
    parts = state.parts.get(key, {})
    return bool(parts) and all(part.context is Context.RESIDENT for part in parts.values())


def _job(key: Key | None) -> str:
    return key.job_id if key is not None else ""
