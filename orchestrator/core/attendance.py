"""Whether the processes that take turns for a job still live, as its nodes' agents see it.

A lease ends when its holder's processes are gone for a while, although the job lives: on one node at least
there were some, and on none there are any now, nor any with state on a device.
"""

from __future__ import annotations

from slurm_interleave.client.core.states import Attendance, SliceState
from slurm_interleave.orchestrator.core.commands import WakeMe
from slurm_interleave.orchestrator.core.events import AbsenceCheck
from slurm_interleave.orchestrator.core.rules import Rules
from slurm_interleave.orchestrator.core.state import State
from slurm_interleave.sql.rows import Key


class Absences:
    """Waits a while for holders who are gone, and ends their leases."""

    def __init__(self, state: State, rules: Rules) -> None:
        self._state = state
        self._grace_s = rules.gone_grace_s

    def reported(self, key: Key, node: str, attendance: Attendance, at: float) -> None:
        """Take what an agent says of a member on its node."""
        known, _ = self._state.attended.get((key, node), (Attendance.UNKNOWN, at))
        if known is not attendance:
            self._state.attended[key, node] = (attendance, at)
        # Again too: what was not known of another node may be known by now.
        for lease in (key, *self._state.drivers.leases_of(key.job_id)):
            self._wait(lease, at)

    def granted(self, key: Key, at: float) -> None:
        """A lease that nobody asked for, since a rule had taken it, is that of who may be gone by now."""
        if self._state.leases[key].told:
            self._wait(key, at)

    def check(self, event: AbsenceCheck) -> None:
        """The time to come back is over: end the lease, if it is the same and nobody came."""
        state, key = self._state, Key(event.job_id, event.group)
        lease, since = state.leases.get(key), self._gone_since(key)
        if lease is None or lease.epoch != event.epoch or since is None or event.at < since + self._grace_s:
            return
        state.end_lease(key, SliceState.ABANDONED, event.at)
        state.note("lease.abandoned", key, f"its processes are gone for {self._grace_s:g} s, its job lives")

    def _wait(self, key: Key, at: float) -> None:
        lease, since = self._state.leases.get(key), self._gone_since(key)
        if self._grace_s and lease is not None and since is not None:
            until = max(since + self._grace_s, at)
            self._state.out.append(WakeMe(AbsenceCheck(until, key.job_id, key.group, lease.epoch)))

    def _gone_since(self, key: Key) -> float | None:
        """Return since when nobody is there; None if somebody may be, as where an agent is away."""
        lease = self._state.leases.get(key)
        driver = self._state.jobs.get(lease.driver, {}) if lease is not None and lease.driver else {}
        places = [(member, node) for member in (key, *driver) for node in self._state.parts.get(member, {})]
        if not all(node in self._state.nodes_up for _, node in places):
            return None
        unknown = (Attendance.UNKNOWN, 0.0)
        seen = [self._state.attended.get(place, unknown) for place in places]
        if any(attendance is Attendance.PRESENT for attendance, _ in seen):
            return None
        gone = max((since for attendance, since in seen if attendance is Attendance.GONE), default=None)
        # Whoever was told of the lease since is there, though his node's agent may not have seen him come.
        return None if gone is None or self._state.told_at.get(key, 0.0) > gone else gone
