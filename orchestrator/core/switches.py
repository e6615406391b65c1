"""Switches: other contexts off the devices, one on, on all nodes; all or nothing.

All moves are ordered at once; a restore names the snapshots on its node that it comes after, so no node waits
for another and none for the orchestrator. If a move fails, what the others did is undone: what was restored
is saved again, then what was saved is brought back. The member that failed is tried again after a back-off,
and faulted after `ATTEMPTS` failures.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from slurm_interleave.client.core.states import Context
from slurm_interleave.orchestrator.core.book import Device
from slurm_interleave.orchestrator.core.commands import CancelOperation, Operate, Verb, WakeMe
from slurm_interleave.orchestrator.core.events import OperationDone, Wake
from slurm_interleave.orchestrator.core.state import State
from slurm_interleave.sql.rows import Key

ATTEMPTS = 3
BACK_OFF_S = (1.0, 5.0)
_DURING = {Verb.SNAPSHOT: Context.SAVING, Verb.RESTORE: Context.RESTORING}
# Where the state is when a move was made, and when it failed and changed nothing.
_MADE = {Verb.SNAPSHOT: Context.SAVED, Verb.RESTORE: Context.RESIDENT}
Spot = tuple[Key, str]  # a member on a node
_UNTOUCHED = {Verb.SNAPSHOT: Context.RESIDENT, Verb.RESTORE: Context.SAVED}


@dataclass(frozen=True)
class Move:
    """One context to be moved on one node, after the moves numbered *after* on the same node."""

    key: Key
    node: str
    verb: Verb
    after: tuple[str, ...] = ()


@dataclass
class Cost:
    """What a switch cost: wall seconds, the slowest node's operations, bytes moved."""

    began: float
    ended: float = 0.0
    snapshot_s: float = 0.0
    restore_s: float = 0.0
    bytes: int = 0
    restored: bool = False

    def add(self, move: Move, done: OperationDone) -> None:
        """Count one move."""
        self.bytes += done.bytes
        if move.verb is Verb.SNAPSHOT:
            self.snapshot_s = max(self.snapshot_s, done.seconds)
        else:
            self.restore_s = max(self.restore_s, done.seconds)
            self.restored = True


@dataclass
class Switch:
    """A switch under way. *pending* are the moves that agents have not reported yet."""

    into: Key
    devices: list[Device]
    cost: Cost
    undoing: bool = False
    pending: dict[str, Move] = field(default_factory=dict)
    done: list[Move] = field(default_factory=list)
    failed: bool = False
    culprits: dict[Key, str] = field(default_factory=dict)  # who failed, and why
    lost: set[Key] = field(default_factory=set)  # of those, whose state is lost
    cancelled: set[Key] = field(default_factory=set)  # of those, whose moves an operator has had stopped


class Switches:
    """All switches under way, and what the finished ones cost until the grant takes that over."""

    def __init__(self, state: State, instance: int, *, beside: bool = False) -> None:
        """*beside*: a context may be restored to devices that others are on, if they fit together."""
        self._state = state
        self._beside = beside
        self._instance = instance
        self._number = 0
        self.active: dict[Key, Switch] = {}
        self.costs: dict[Key, Cost] = {}
        self.not_before: dict[Key, float] = {}
        self._by_number: dict[str, Switch] = {}
        self._failures: dict[Key, int] = {}

    def begin(self, into: Key, save: list[Spot], load: list[Spot], at: float) -> None:
        """For *into*, take the contexts *save* off their devices and bring *load* back."""
        state = self._state
        devices = dict.fromkeys(state.claimed_devices(into) if into in state.waiters else ())
        for key, node in (*save, *load):
            devices.update(dict.fromkeys(Device(node, i) for i in state.parts[key][node].devices))
        switch = Switch(into, list(devices), Cost(began=at))
        self.active[into] = switch
        state.note_changed(*state.claimed_with(into))
        for device in switch.devices:
            state.book.switching[device] = into
        self._order(switch, save, load)
        self._step(switch, at)

    def under_way(self, operation: str) -> Switch | None:
        """Return the switch that waits for *operation*."""
        return self._by_number.get(operation)

    def done(self, event: OperationDone) -> bool:
        """Take an agent's result; return whether it belongs to a switch under way."""
        switch = self._by_number.pop(event.operation, None)
        if switch is None:
            return False
        move = switch.pending.pop(event.operation)
        self._state.set_context(move.key, move.node, event.context, event.bytes)
        if event.ok and event.context in (Context.NONE, _MADE[move.verb]):
            switch.cost.add(move, event)
            self._state.took[move.key, move.verb] = event.seconds
            switch.done.append(move)
        else:
            self._failed(switch, move, event)
        self._step(switch, event.at)
        return True

    def part_over(self, key: Key, node: str, at: float) -> None:
        """A job ended on *node*: what was to be moved there is gone, and so nothing is left to wait for."""
        for switch in list(self.active.values()):
            gone = [number for number, move in switch.pending.items() if (move.key, move.node) == (key, node)]
            for number in gone:
                del switch.pending[number], self._by_number[number]
            if gone:
                self._step(switch, at)

    def node_up(self, node: str) -> None:
        """Tell a returned agent again what it was asked; it knows whether it has done so."""
        for switch in self.active.values():
            for number, move in switch.pending.items():
                if move.node == node:
                    self._send(number, move)
                    if move.key in switch.cancelled:
                        self._state.out.append(CancelOperation(node, move.key.job_id, number))

    def cancelled(self, key: Key, operation: str) -> bool:
        """Take note that *operation* on *key* is to be stopped; tell whether a switch waits for it.

        If it is undone, that counts as no failure: the switch is tried again after the longest back-off.
        """
        switch = self._by_number.get(operation)
        if switch is not None:
            switch.cancelled.add(key)
        return switch is not None

    def back_off(self, into: Key, at: float, seconds: float = BACK_OFF_S[-1]) -> None:
        """Try waiter *into* again later."""
        until, waiter = at + seconds, self._state.waiters[into]
        self.not_before[into] = until
        self._state.out.append(WakeMe(Wake(until, waiter.job_id, waiter.group, waiter.requested)))

    def back_off_over(self, key: Key, at: float) -> None:
        """Let *key* try again if its time has come."""
        if self.not_before.get(key, at) <= at:
            self.not_before.pop(key, None)

    def forget(self, key: Key) -> None:
        """A member is gone."""
        self.costs.pop(key, None)
        self.not_before.pop(key, None)
        self._failures.pop(key, None)

    def pending_on(self, key: Key, node: str) -> bool:
        """Tell whether the context of *key* on *node* is being moved."""
        part = self._state.parts.get(key, {}).get(node)
        return part is not None and part.operation in self._by_number

    def moves(self, key: Key) -> bool:
        """Tell whether a switch moves the context of *key*, or may have to bring it back."""
        return any(
            move.key == key
            for switch in self.active.values()
            for move in (*switch.pending.values(), *switch.done)
        )

    def _order(self, switch: Switch, save: list[Spot], load: list[Spot]) -> None:
        """Order all moves of a stage: on each node the snapshots, and the restores after them."""
        before: dict[str, list[str]] = {}
        for key, node in save:
            before.setdefault(node, []).append(self._begin(switch, Move(key, node, Verb.SNAPSHOT)))
        for key, node in load:
            self._begin(switch, Move(key, node, Verb.RESTORE, tuple(before.get(node, ()))))

    def _begin(self, switch: Switch, move: Move) -> str:
        self._number += 1
        number = f"{self._instance}-{self._number}"
        switch.pending[number] = move
        self._by_number[number] = switch
        size = self._state.parts[move.key][move.node].bytes
        self._state.set_context(move.key, move.node, _DURING[move.verb], size, number)
        self._send(number, move)
        return number

    def _send(self, number: str, move: Move) -> None:
        part = self._state.parts[move.key][move.node]
        self._state.out.append(
            Operate(number, move.verb, move.node, move.key.job_id, part.attempt, move.after, self._beside)
        )

    def _failed(self, switch: Switch, move: Move, event: OperationDone) -> None:
        """Note who failed. Agents do not begin what comes after it, so that is not waited for."""
        switch.failed = True
        for number, later in list(switch.pending.items()):
            if event.operation in later.after:
                del switch.pending[number], self._by_number[number]
                size = self._state.parts[later.key][later.node].bytes
                self._state.set_context(later.key, later.node, _UNTOUCHED[later.verb], size)
        lost = event.context is not _UNTOUCHED[move.verb]
        reason = f"{move.verb.value} on node {move.node}: {event.error or 'no reason given'}"
        self._state.note("switch.failed", move.key, reason)
        if lost or not (switch.undoing or move.key in switch.lost):  # what lost it is why it is faulted
            switch.culprits[move.key] = reason
        if lost:
            switch.lost.add(move.key)

    def _step(self, switch: Switch, at: float) -> None:
        """Go on when nothing is pending: undo what a failed switch did, or end."""
        if switch.pending:
            return
        if switch.failed and not switch.undoing:
            self._undo(switch)
        if not switch.pending:
            self._end(switch, at)

    def _undo(self, switch: Switch) -> None:
        switch.undoing = True
        made = [move for move in switch.done if self._stands(move)]
        loaded = [(move.key, move.node) for move in made if move.verb is Verb.RESTORE]
        saved = [(move.key, move.node) for move in made if move.verb is Verb.SNAPSHOT]
        self._order(switch, loaded, [place for place in saved if self._can_come_back(*place, loaded)])

    def _can_come_back(self, key: Key, node: str, leaving: list[tuple[Key, str]]) -> bool:
        """Tell whether a saved context finds its devices free; one that was lost there keeps them."""
        devices = [Device(node, i) for i in self._state.parts[key][node].devices]
        there = {other for device in devices for other in self._state.book.occupants(device)}
        return all((other, node) in leaving for other in there)

    def _stands(self, move: Move) -> bool:
        part = self._state.parts.get(move.key, {}).get(move.node)
        return part is not None and part.context is _MADE[move.verb]

    def _end(self, switch: Switch, at: float) -> None:
        state = self._state
        del self.active[switch.into]
        state.note_changed(*state.claimed_with(switch.into))
        for device in switch.devices:
            if state.book.switching.get(device) == switch.into:
                del state.book.switching[device]
        # The member may have started again meanwhile, on other devices.
        state.touch([*switch.devices, *state.devices(switch.into)])
        switch.cost.ended = at
        for move in switch.done:
            if move.key not in switch.culprits:
                self._failures.pop(move.key, None)
        if switch.culprits:
            self._settle(switch, at)
        elif switch.into in state.waiters:
            self.costs[switch.into] = switch.cost

    def _settle(self, switch: Switch, at: float) -> None:
        """Fault those who failed too often; let the others be tried again later."""
        state, worst = self._state, 1
        for key, reason in switch.culprits.items():
            if key not in state.members:
                continue
            failures = self._failures.get(key, 0) + (key not in switch.cancelled)
            failures = self._failures[key] = ATTEMPTS if key in switch.lost else failures
            worst = max(worst, failures)
            if failures >= ATTEMPTS:
                state.fault(key, reason)
        if switch.into in state.waiters and worst < ATTEMPTS:
            tried = len(BACK_OFF_S) if switch.cancelled else min(worst, len(BACK_OFF_S))
            self.back_off(switch.into, at, BACK_OFF_S[tried - 1])
