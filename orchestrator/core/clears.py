"""The exit from a fault: what is left of the device state is discarded, then the member may acquire again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from slurm_interleave.client.core.errors import Busy, InterleaveError, JobEnded, WrongState
from slurm_interleave.client.core.states import Context, SliceState
from slurm_interleave.orchestrator.core.commands import Cleared, Operate, Refuse, Verb
from slurm_interleave.orchestrator.core.events import CallId, Clear, OperationDone
from slurm_interleave.orchestrator.core.state import State
from slurm_interleave.orchestrator.core.switches import Switches
from slurm_interleave.sql.rows import Key, Part

_INTACT = frozenset({Context.NONE, Context.RESIDENT, Context.SAVED})


@dataclass
class _Clearing:
    """A fault that is being cleared: *pending* are the nodes that have not discarded yet."""

    calls: set[CallId]
    pending: dict[str, str] = field(default_factory=dict)  # node by operation
    lost: list[Part] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class Clears:
    """All faults that are being cleared.

    Until its end the member stays faulted: it keeps its devices and gets no turn. After a crash it is faulted
    as before, and whoever cleared it does so again.
    """

    def __init__(self, state: State, switches: Switches, instance: int) -> None:
        self._state = state
        self._switches = switches
        self._instance = instance
        self._number = 0
        self._active: dict[Key, _Clearing] = {}
        self._by_number: dict[str, Key] = {}

    def clear(self, key: Key, event: Clear) -> None:
        """Begin to clear the fault of *key*. Raises `WrongState`, `Busy`; then nothing has changed."""
        if key in self._active:
            self._active[key].calls.add(event.call)
            return
        parts = list(self._state.parts[key].values())
        self._check(key, parts, keep=event.keep)
        if key in self._state.leases:
            self._state.end_lease(key, SliceState.REVOKED, event.at)
        clearing = self._active[key] = _Clearing({event.call})
        for part in () if event.keep else parts:
            self._discard(key, part, clearing)
        self._step(key)

    def _check(self, key: Key, parts: list[Part], *, keep: bool) -> None:
        state = self._state
        if not state.members[key].fault:
            raise WrongState(f"{key} is not faulted, so there is nothing to clear")
        if key in self._switches.active or any(self._switches.pending_on(key, part.node) for part in parts):
            raise Busy(f"{key}: its device state is being moved; try again when that is done")
        lost = [part.node for part in parts if part.context not in _INTACT]
        if keep and lost:
            raise WrongState(
                f"{key}: its device state on node {', '.join(lost)} is not intact and cannot be kept; "
                "clear it without keeping"
            )
        away = [part.node for part in parts if part.node not in state.nodes_up]
        if away and not keep:
            raise WrongState(
                f"{key}: the agent of node {', '.join(away)} is away and cannot discard; "
                "try again when it is back, or end the job"
            )

    def _discard(self, key: Key, part: Part, clearing: _Clearing) -> None:
        self._number += 1
        number = f"{self._instance}-clear-{self._number}"
        clearing.pending[number] = part.node
        self._by_number[number] = key
        if part.context is not Context.NONE:
            clearing.lost.append(part)
        self._state.out.append(Operate(number, Verb.DISCARD, part.node, key.job_id, part.attempt))

    def done(self, event: OperationDone) -> bool:
        """Take an agent's result; return whether it belongs here."""
        key = self._by_number.pop(event.operation, None)
        if key is None:
            return False
        clearing = self._active[key]
        del clearing.pending[event.operation]
        self._state.set_context(key, event.node, event.context, event.bytes)
        if not event.ok or event.context is not Context.NONE:
            why = event.error or f"its device state is {event.context.value} still"
            clearing.failures.append(f"discard on node {event.node}: {why}")
        self._step(key)
        return True

    def node_up(self, node: str) -> None:
        """Tell a returned agent again what it was asked; it knows whether it has done so."""
        for key, clearing in self._active.items():
            for number, where in clearing.pending.items():
                if where == node:
                    attempt = self._state.parts[key][node].attempt
                    self._state.out.append(Operate(number, Verb.DISCARD, node, key.job_id, attempt))

    def part_over(self, key: Key, node: str) -> None:
        """The job ended on *node*: nothing is left there to discard."""
        clearing = self._active.get(key)
        if clearing is None:
            return
        for number in [number for number, where in clearing.pending.items() if where == node]:
            del clearing.pending[number], self._by_number[number]
        self._step(key)

    def forget(self, key: Key) -> None:
        """The member is gone, or begins anew."""
        clearing = self._active.pop(key, None)
        if clearing is not None:
            for number in clearing.pending:
                del self._by_number[number]
            self._refuse(clearing, JobEnded(f"{key} has ended"))

    def _step(self, key: Key) -> None:
        """End when no node is left to answer."""
        state, clearing = self._state, self._active[key]
        if clearing.pending:
            return
        if state.members[key].over:
            self.forget(key)
            return
        del self._active[key]
        if clearing.failures:
            reason = "; ".join(clearing.failures)
            state.note("clear.failed", key, reason)
            self._refuse(clearing, WrongState(f"{key} stays faulted: {reason}"))
            return
        state.note("member.cleared", key, state.members[key].fault)
        state.put_member(replace(state.members[key], fault=""))
        self._switches.forget(key)
        state.touch(state.devices(key))
        state.out.append(Cleared(frozenset(clearing.calls), tuple(clearing.lost)))

    def _refuse(self, clearing: _Clearing, error: InterleaveError) -> None:
        self._state.out.append(Refuse(frozenset(clearing.calls), error))
