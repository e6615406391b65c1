"""Several movers of one job: each takes what the ones before it left; a restore goes the other way."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from typing_extensions import override

from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent.backends.protocol import Charge, Mover, Target
from slurm_interleave.node_agent.contexts import Outcome, Verb
from slurm_interleave.node_agent.waits import CANCELLED, Stop

_UNTOUCHED = {Verb.SNAPSHOT: Context.RESIDENT, Verb.RESTORE: Context.SAVED}
log = logging.getLogger(__name__)
_DONE = {Verb.SNAPSHOT: (Context.SAVED, Context.NONE), Verb.RESTORE: (Context.RESIDENT, Context.NONE)}


class Combined(Mover):
    """All of its movers do their part, or what was done is undone."""

    in_app = True

    def __init__(self, movers: Sequence[Mover]) -> None:
        """*movers* in the order of a snapshot: the application first, since the device's backend stops it."""
        self._movers = movers
        self.in_process = all(mover.in_process for mover in movers)  # type: ignore[misc]  # of these movers
        charges = {mover.charge for mover in movers}
        self.charge = next(
            charge for charge in (Charge.JOB, Charge.NODE, Charge.NOTHING) if charge in charges
        )
        self.name = "+".join(mover.name for mover in movers)
        self.can_spill = movers[0].can_spill  # the first takes most of it, and the others must fit

    @override
    async def snapshot(self, target: Target) -> Outcome:
        """Save part by part."""
        return await self._all(Verb.SNAPSHOT, self._movers, target)

    @override
    async def restore(self, target: Target) -> Outcome:
        """Bring back part by part, the last saved first."""
        return await self._all(Verb.RESTORE, self._movers[::-1], target)

    @override
    def fresh_size(self, job: str, resident: int) -> int:
        """As of the part that has set aside most: the parts share what is on the devices."""
        return min(mover.fresh_size(job, resident) for mover in self._movers)

    @override
    async def discard(self, target: Target) -> Outcome:
        """Forget all parts."""
        for mover in self._movers:
            await mover.discard(target)
        return Outcome(Context.NONE)

    async def _all(self, verb: Verb, movers: Sequence[Mover], target: Target) -> Outcome:
        until, moved, outcome = time.monotonic() + target.deadline_s, 0, Outcome(Context.NONE)
        in_memory = 0
        for done, mover in enumerate(movers):
            beside_disk = verb is Verb.SNAPSHOT and target.spill and not mover.can_spill
            why = await target.fits(mover, outcome.kept) if beside_disk else ""
            if why or target.stop.is_set():
                outcome = Outcome(_UNTOUCHED[verb], error=why or CANCELLED)
            else:
                outcome = await _one(verb, mover, _by(until, target))
            if outcome.context not in _DONE[verb] or outcome.error:
                return await self._undone(verb, movers[:done], outcome, target)
            moved += outcome.moved
            in_memory += outcome.moved if beside_disk else 0
        return Outcome(_DONE[verb][0], moved, kept=outcome.kept, in_memory=in_memory)

    async def _undone(self, verb: Verb, done: Sequence[Mover], failed: Outcome, target: Target) -> Outcome:
        """Undo *done*, the last first. It is lost if that fails, or if the part that failed lost it."""
        back = Verb.RESTORE if verb is Verb.SNAPSHOT else Verb.SNAPSHOT
        errors = [failed.error]
        undoing = replace(target, stop=Stop())
        for mover in reversed(done):
            outcome = await _one(back, mover, undoing)
            if outcome.error:
                errors.append(f"and then, undoing it, {mover.name}: {outcome.error}")
        where = _UNTOUCHED[verb]
        if failed.context is Context.FAULTED or len(errors) > 1:
            where = Context.FAULTED
        return Outcome(where, error="; ".join(errors))


async def _one(verb: Verb, mover: Mover, target: Target) -> Outcome:
    """Return the outcome of one part; what a mover raises is a state that nobody knows."""
    try:
        its_own = replace(target, spill=target.spill and mover.can_spill)
        outcome: Outcome = await getattr(mover, verb.value)(its_own)
    except Exception as error:
        log.exception("backend.broken", extra={"job": target.job, "backend": mover.name})
        return Outcome(Context.FAULTED, error=f"backend {mover.name} failed: {error!r}")
    return outcome


def _by(until: float, target: Target) -> Target:
    return replace(target, deadline_s=max(0.0, until - time.monotonic()))
