"""What Slurm, or a drain, says of jobs that are registered: their weight, and whether they can act now."""

from __future__ import annotations

from dataclasses import replace

from slurm_interleave.client.core.states import Context
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.limits import Limits
from slurm_interleave.orchestrator.core.state import State
from slurm_interleave.sql.rows import Key


class Word:
    """Takes their word. It is not remembered: after a restart Slurm and the agents say it again."""

    def __init__(self, state: State, limits: Limits) -> None:
        self._state = state
        self._limits = limits

    def handle(self, event: ev.JobEvent | ev.Components) -> None:
        """Take *event*; whom it puts first, or keeps waiting, may change at once."""
        if isinstance(event, ev.Components):
            self._state.drivers.components = event.of
            return
        keys = list(self._state.jobs.get(event.job_id, ()))
        if not keys:
            return
        match event:
            case ev.Weigh():
                self._weigh(event, keys)
            case ev.Suspended():
                self._suspend(event)
            case ev.Draining():
                self._drain(event, keys)
        for key in keys:
            self._state.touch(self._state.devices(key))
            self._state.note_changed(key)

    def _drain(self, event: ev.Draining, keys: list[Key]) -> None:
        """Its processes must not believe, when they come back, that they hold their devices."""
        state = self._state
        (state.pauses.being_saved if event.draining else state.pauses.go_on)(event.job_id, event.node)
        before = Context.RESIDENT if event.draining else Context.UNKNOWN
        for key in keys:
            part = state.parts.get(key, {}).get(event.node)
            if part is not None and (part.context, part.operation) == (before, ""):
                state.set_context(key, event.node, Context.RESIDENT)  # or not known: see there

    def over(self, key: Key) -> None:
        """A member is over: if it is on its way to disk still, no later run in another group need wait."""
        state = self._state
        live = (other for other in state.jobs[key.job_id] if not state.members[other].over)
        used = {node for other in live for node in state.parts.get(other, {})}
        for node in state.parts.get(key, {}).keys() - used:
            state.pauses.go_on(key.job_id, node)

    def _weigh(self, event: ev.Weigh, keys: list[Key]) -> None:
        self._state.priorities[event.job_id] = event.priority
        for key in keys:
            member = self._state.members[key]
            told = replace(member, account=member.account or event.account, name=member.name or event.name)
            if told != member:
                self._state.put_member(told)

    def _suspend(self, event: ev.Suspended) -> None:
        if not event.suspended:
            self._state.pauses.suspended.discard(event.job_id)
            return
        self._state.pauses.suspended.add(event.job_id)
        for key in self._state.leases_of(event.job_id):
            self._limits.check(key, self._state.leases[key].epoch, event.at)
