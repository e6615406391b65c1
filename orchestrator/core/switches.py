"""Switches: other contexts off the devices, one on, on all nodes; all or nothing.

A switch saves first, then loads. If a half fails, the other half is undone: a failed save brings back what
was saved, a failed load takes off what was loaded. Then the member that failed is tried again after a
back-off, and faulted after `ATTEMPTS` failures.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from slurm_interleave.client.core.states import Context
from slurm_interleave.orchestrator.core.book import Device
from slurm_interleave.orchestrator.core.commands import Operate, Verb, WakeMe
from slurm_interleave.orchestrator.core.events import OperationDone, Wake
from slurm_interleave.orchestrator.core.state import State
from slurm_interleave.sql.rows import Key

ATTEMPTS = 3
BACK_OFF_S = (1.0, 5.0)


class Stage(Enum):
    """Where a switch is."""

    SAVE = "saving the other contexts"
    LOAD = "restoring the job's own context"
    UNDO = "undoing a failed half"


@dataclass(frozen=True)
class Operation:
    """One context to be moved on one node."""

    key: Key
    node: str
    verb: Verb


@dataclass
class Cost:
    """What a switch cost: wall seconds, the slowest node's operations, bytes moved."""

    began: float
    ended: float = 0.0
    snapshot_s: float = 0.0
    restore_s: float = 0.0
    bytes: int = 0
    restored: bool = False

    def add(self, operation: Operation, done: OperationDone) -> None:
        """Count one operation."""
        self.bytes += done.bytes
        if operation.verb is Verb.SNAPSHOT:
            self.snapshot_s = max(self.snapshot_s, done.seconds)
        else:
            self.restore_s = max(self.restore_s, done.seconds)
            self.restored = True


@dataclass
class Switch:
    """A switch under way. *pending* are the operations that agents have not reported yet."""

    into: Key
    devices: list[Device]
    cost: Cost
    stage: Stage = Stage.SAVE
    pending: dict[str, Operation] = field(default_factory=dict)
    done: list[Operation] = field(default_factory=list)
    culprits: dict[Key, str] = field(default_factory=dict)  # who failed, and why


class Switches:
    """All switches under way, and what the finished ones cost until the grant takes that over."""

    def __init__(self, state: State, instance: int) -> None:
        self._state = state
        self._instance = instance
        self._number = 0
        self.active: dict[Key, Switch] = {}
        self.costs: dict[Key, Cost] = {}
        self.not_before: dict[Key, float] = {}
        self._by_operation: dict[str, Switch] = {}
        self._failures: dict[Key, int] = {}

    def begin(self, into: Key, out: list[tuple[Key, str]], at: float) -> None:
        """Start to take *out* (members and nodes) off the devices of *into*."""
        state = self._state
        devices = dict.fromkeys(state.devices(into))
        for key, node in out:
            devices.update(dict.fromkeys(Device(node, i) for i in state.parts[key][node].devices))
        switch = Switch(into, list(devices), Cost(began=at))
        self.active[into] = switch
        state.changed_groups[into.group] = None
        for device in switch.devices:
            state.book.switching[device] = into
        for key, node in out:
            self._operate(switch, Operation(key, node, Verb.SNAPSHOT))
        self._step(switch, at)

    def done(self, event: OperationDone) -> bool:
        """Take an agent's result; return whether it belongs to a switch under way."""
        switch = self._by_operation.pop(event.operation, None)
        if switch is None:
            return False
        operation = switch.pending.pop(event.operation)
        self._state.set_context(operation.key, operation.node, event.context, event.bytes)
        if event.ok:
            switch.cost.add(operation, event)
            switch.done.append(operation)
        else:
            self._failed(switch, operation, event)
        self._step(switch, event.at)
        return True

    def part_over(self, key: Key, node: str, at: float) -> None:
        """A job ended on *node*: what was to be moved there is gone, and so nothing is left to wait for."""
        for switch in list(self.active.values()):
            gone = [number for number, op in switch.pending.items() if (op.key, op.node) == (key, node)]
            for number in gone:
                del switch.pending[number], self._by_operation[number]
            if gone:
                self._step(switch, at)

    def node_up(self, node: str) -> None:
        """Tell a returned agent again what it was asked; it knows whether it has done so."""
        for switch in self.active.values():
            for number, operation in switch.pending.items():
                if operation.node == node:
                    self._send(number, operation)

    def forget(self, key: Key) -> None:
        """A member is gone."""
        self.costs.pop(key, None)
        self.not_before.pop(key, None)
        self._failures.pop(key, None)

    def pending_on(self, key: Key, node: str) -> bool:
        """Tell whether the context of *key* on *node* is being moved."""
        part = self._state.parts.get(key, {}).get(node)
        return part is not None and part.operation in self._by_operation

    def _operate(self, switch: Switch, operation: Operation) -> None:
        self._number += 1
        number = f"{self._instance}-{self._number}"
        switch.pending[number] = operation
        self._by_operation[number] = switch
        saving = operation.verb is Verb.SNAPSHOT
        moving = Context.SAVING if saving else Context.RESTORING
        size = 0 if saving else self._state.parts[operation.key][operation.node].bytes
        self._state.set_context(operation.key, operation.node, moving, size, number)
        self._send(number, operation)

    def _send(self, number: str, operation: Operation) -> None:
        attempt = self._state.parts[operation.key][operation.node].attempt
        self._state.out.append(Operate(number, operation.verb, operation.node, operation.key.job_id, attempt))

    def _failed(self, switch: Switch, operation: Operation, event: OperationDone) -> None:
        reason = f"{operation.verb.value} on node {operation.node}: {event.error or 'no reason given'}"
        self._state.note("switch.failed", operation.key, reason)
        untouched = Context.RESIDENT if operation.verb is Verb.SNAPSHOT else Context.SAVED
        lost = event.context is not untouched
        if lost or switch.stage is not Stage.UNDO:
            switch.culprits[operation.key] = reason
        if lost:
            self._failures[operation.key] = ATTEMPTS

    def _step(self, switch: Switch, at: float) -> None:
        """Go on to the next stage, or to the end, when nothing is pending."""
        while not switch.pending:
            if not self._next_stage(switch):
                self._end(switch, at)
                return

    def _next_stage(self, switch: Switch) -> bool:
        """Enter the next stage; return whether there is one."""
        if switch.stage is Stage.UNDO:
            return False
        if switch.culprits:
            self._undo(switch)
        elif switch.stage is Stage.SAVE:
            self._load(switch)
        else:
            return False
        return True

    def _load(self, switch: Switch) -> None:
        """Restore what the member has in host memory."""
        switch.stage = Stage.LOAD
        if switch.into not in self._state.waiters:
            return
        for part in list(self._state.parts[switch.into].values()):
            if part.context is Context.SAVED:
                self._operate(switch, Operation(switch.into, part.node, Verb.RESTORE))

    def _undo(self, switch: Switch) -> None:
        """Reverse what the failed stage had done on other nodes."""
        if switch.stage is Stage.SAVE:
            did, reverse, there = Verb.SNAPSHOT, Verb.RESTORE, Context.SAVED
        else:
            did, reverse, there = Verb.RESTORE, Verb.SNAPSHOT, Context.RESIDENT
        switch.stage = Stage.UNDO
        for operation in list(switch.done):
            part = self._state.parts.get(operation.key, {}).get(operation.node)
            if operation.verb is did and part is not None and part.context is there:
                self._operate(switch, Operation(operation.key, operation.node, reverse))

    def _end(self, switch: Switch, at: float) -> None:
        state = self._state
        del self.active[switch.into]
        state.changed_groups[switch.into.group] = None
        for device in switch.devices:
            del state.book.switching[device]
        state.touch(switch.devices)
        switch.cost.ended = at
        for operation in switch.done:
            if operation.key not in switch.culprits:
                self._failures.pop(operation.key, None)
        if switch.culprits:
            self._settle(switch, at)
        elif switch.into in state.waiters:
            self.costs[switch.into] = switch.cost

    def _settle(self, switch: Switch, at: float) -> None:
        """Fault those who failed too often; let the others be tried again later."""
        state, worst = self._state, 0
        for key, reason in switch.culprits.items():
            member = state.members.get(key)
            if member is None:
                continue
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            worst = max(worst, failures)
            if failures >= ATTEMPTS:
                state.fault(key, reason)
        if switch.into in state.waiters and worst < ATTEMPTS:
            until = at + BACK_OFF_S[min(max(worst, 1), len(BACK_OFF_S)) - 1]
            self.not_before[switch.into] = until
            waiter = state.waiters[switch.into]
            state.out.append(WakeMe(Wake(until, waiter.job_id, waiter.group, waiter.seq)))
