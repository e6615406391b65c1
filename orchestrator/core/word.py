"""What Slurm says of jobs that are registered."""

from __future__ import annotations

from dataclasses import replace

from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.state import State


class Word:
    """Takes Slurm's word. It is not remembered: after a restart Slurm says it again."""

    def __init__(self, state: State) -> None:
        self._state = state

    def handle(self, event: ev.SlurmEvent) -> None:
        """Take the weight of a job: another one may be first at its devices now."""
        state, keys = self._state, list(self._state.jobs.get(event.job_id, ()))
        if keys:
            state.priorities[event.job_id] = event.priority
        for key in keys:
            member = state.members[key]
            if event.account and not member.account:
                state.put_member(replace(member, account=event.account))
            state.touch(state.devices(key))
            state.note_changed(key)
