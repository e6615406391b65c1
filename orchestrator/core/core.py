"""The core: events in, commands out. No clock, no I/O, no logging."""

from __future__ import annotations

from slurm_interleave.client.core.errors import JobEnded
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.attendance import Absences
from slurm_interleave.orchestrator.core.book import Device
from slurm_interleave.orchestrator.core.calls import RETURN_GRACE_S, Calls
from slurm_interleave.orchestrator.core.cancels import Cancels
from slurm_interleave.orchestrator.core.clears import Clears
from slurm_interleave.orchestrator.core.commands import Command, GroupChanged, Place, WakeMe
from slurm_interleave.orchestrator.core.forecast import Forecast
from slurm_interleave.orchestrator.core.habits import Habits
from slurm_interleave.orchestrator.core.limits import Limits
from slurm_interleave.orchestrator.core.nodes import Nodes
from slurm_interleave.orchestrator.core.order import Order
from slurm_interleave.orchestrator.core.policy import policy_called
from slurm_interleave.orchestrator.core.remembered import Remembered
from slurm_interleave.orchestrator.core.rules import Rules
from slurm_interleave.orchestrator.core.state import State
from slurm_interleave.orchestrator.core.status import Standings
from slurm_interleave.orchestrator.core.switches import Switches
from slurm_interleave.orchestrator.core.trespass import Trespasses
from slurm_interleave.orchestrator.core.turns import Turns
from slurm_interleave.orchestrator.core.waits import Waits
from slurm_interleave.orchestrator.core.word import Word
from slurm_interleave.sql.rows import Key

# Only the head of a queue is told each change of its place; the others are told their first one.
TOLD_PLACES = 8
_DEFAULTS = Rules()


class Core:
    """All groups of one cluster."""

    def __init__(self, remembered: Remembered, instance: int, rules: Rules = _DEFAULTS) -> None:
        self.state = State(remembered)
        self.rules = rules
        self.switches = Switches(self.state, instance, beside=rules.co_resident)
        self.cancels = Cancels(self.state, self.switches)
        self.clears = Clears(self.state, self.switches, instance)
        self._absences = Absences(self.state, rules)
        self._policy = policy_called(rules.policy, rules.ageing_s)
        waits = Waits(self.state)
        self.order = Order(self.state, waits, self._policy, self.switches.costs)
        self.limits = Limits(self.state, rules, waits, self.order)
        self._word = Word(self.state, self.limits)
        self.nodes = Nodes(self.state, self.switches, self.clears, self._absences, self._word)
        self.habits = Habits()
        self.calls = Calls(self.state, waits, self.order)
        self.turns = Turns(self.state, self.switches, self.order, rules, self.habits)
        self.forecast = Forecast(self.state, self.switches, self.order, self.turns, self.habits)
        self.trespasses = Trespasses(self.state, self.switches, self.turns.evict)
        self._told: dict[Key, tuple[int, str]] = {}
        self._asked: dict[Key, None] = {}
        self.standings = Standings(self.state, self.switches.active)

    def start(self, at: float) -> list[Command]:
        """Begin after a restart: waiters without a caller get a time to come back."""
        for waiter in self.state.waiters.values():
            wake = ev.Wake(at + RETURN_GRACE_S, waiter.job_id, waiter.group, waiter.requested)
            self.state.out.append(WakeMe(wake))
        for key in self.state.leases:
            self.limits.granted(key)
        return self._finish(at)

    def handle(self, event: ev.Event) -> list[Command]:
        """Take *event* and return what is to be done.

        Raises an `InterleaveError` for a call that is refused; then nothing has changed.
        """
        match event:
            case ev.Acquire():
                self._acquire(event)
            case ev.Yield():
                self.calls.yield_(event)
            case ev.Cancel() | ev.Away() | ev.Abandon():
                self._goes(event)
            case ev.Wake() | ev.HoldCheck() | ev.AbsenceCheck():
                self._timer(event)
            case ev.Revoke() | ev.Clear() | ev.CancelMoves():
                self._operator(event)
            case ev.Draining():
                self.nodes.draining(event)
            case ev.Weigh() | ev.Suspended() | ev.Components():
                self._word.handle(event)
            case _:
                self._node(event)
        return self._finish(event.at)

    def _operator(self, event: ev.Revoke | ev.Clear | ev.CancelMoves) -> None:
        key = self.calls.find(event.job_id, event.group)
        match event:
            case ev.Clear():
                self.clears.clear(key, event)
            case ev.CancelMoves():
                self.cancels.cancel(key)
            case ev.Revoke():
                self.limits.revoke(key, event.at)

    def _node(self, event: ev.NodeEvent) -> None:
        match event:
            case ev.NodeUp():
                self.trespasses.node_up(event.node, event.trespass)
            case ev.NodeDown():
                self.trespasses.node_down(event.node)
            case ev.Used():
                self.trespasses.used(event)
        self.nodes.handle(event)
        if isinstance(event, ev.NodeUp):
            self.cancels.node_up(event.node, heeds=event.cancels)

    def _acquire(self, event: ev.Acquire) -> None:
        waiter, new = self.calls.acquire(event)
        if waiter is not None:
            self._told.pop(waiter, None)
            self._asked[waiter] = None
        if waiter is not None and new:
            self.switches.costs.pop(waiter, None)  # of an acquire that was given up
            self.habits.acquired(waiter, event.at)
            self.limits.queued(waiter, event.at)

    def _goes(self, event: ev.Cancel | ev.Away | ev.Abandon) -> None:
        if isinstance(event, ev.Away):
            self.calls.away(event)
            return
        if isinstance(event, ev.Abandon):
            self.calls.abandon(event)
            return
        waiter = self.calls.cancel(event)
        if waiter is not None:
            self.switches.costs.pop(waiter, None)

    def _timer(self, event: ev.Wake | ev.HoldCheck | ev.AbsenceCheck) -> None:
        key = Key(event.job_id, event.group)
        if isinstance(event, ev.AbsenceCheck):
            self._absences.check(event)
            return
        if isinstance(event, ev.HoldCheck):
            self.limits.check(key, event.epoch, event.at)
            return
        self.switches.back_off_over(key, event.at)
        waiter = self.state.waiters.get(key)
        if waiter is None:
            return
        self.state.touch(self.state.claimed_devices(key))
        if waiter.requested == event.requested and not (self.state.attached.of(key) or waiter.told):
            self.state.refuse(key, JobEnded(f"{key}: its caller did not come back"))

    def _finish(self, at: float) -> list[Command]:
        """Grant and switch what can be, then return the commands of this event."""
        state, looked_at = self.state, dict[Device, None]()
        self.cancels.look(at)
        self._leases_ended(at)
        while state.dirty:
            dirty, state.dirty = state.dirty, {}
            looked_at.update(dirty)
            for device in state.book.apart(dirty):
                self._look(device, at)
        self._tell_places(looked_at, at)
        self.state.out += map(GroupChanged, self.standings.update(self.state.take_changed(), at))
        out, state.out = state.out, []
        return out

    def _look(self, device: Device, at: float) -> None:
        granted = self.turns.look(device, at)
        if granted is not None:
            self._told.pop(granted, None)
            self.calls.granted(granted)
            for key in self.state.granted_with[granted]:
                self.limits.granted(key)
                self._absences.granted(key, at)

    def _leases_ended(self, at: float) -> None:
        """Learn from the leases that ended, and save at once what is not wanted next."""
        ended, self.state.ended = self.state.ended, []
        for key, lease, ended_at, paused in ended:
            member = self.state.members.get(key)
            self.limits.ended(lease.epoch)
            self.state.granted_with.pop(key, None)
            if member is None or member.over:
                self.habits.forget(key)
                continue
            held = max(ended_at - lease.granted, 0.0)
            self._policy.held(member.account, held * len(self.state.devices(key)), at)
            switch_s = lease.switch_s if lease.switched else None
            self.habits.held(key, lease.phase, held, switch_s, paused=paused)
            self.habits.yielded(key, ended_at, paused=paused)
            if self._save_at_once(key, at):
                self.turns.evict(key, at)

    def _save_at_once(self, key: Key, at: float) -> bool:
        devices = self.state.devices(key)
        early = self.rules.eager != "off" or self._policy.saves_early
        if not early or self.state.book.depth(devices):
            return False
        others = {
            other
            for node in {device.node for device in devices}
            for other in self.state.on_node.get(node, ())
            if other != key and not set(devices).isdisjoint(self.state.devices(other))
        }
        if self.rules.eager == "always":
            return bool(others)
        return self.habits.another_comes_first(key, others, at)

    def _tell_places(self, devices: dict[Device, None], at: float) -> None:
        """Tell those at the head of the touched queues, and who has just asked, where they stand now."""
        asked, self._asked = self._asked, {}
        if not self.state.attached.listeners:
            return
        heads = [key for key in self.order.heads(devices, TOLD_PLACES, at) if self._listeners_of(key)]
        places = self.turns.places(heads, at) if heads else {}
        for key in asked:
            if key in self.state.waiters and key not in places and self._listeners_of(key):
                places[key] = self.turns.place(key, at)
        for key, place in places.items():
            if place != self._told.get(key):
                self._told[key] = place
                self.state.out.append(Place(self._listeners_of(key), *place))

    def _listeners_of(self, key: Key) -> frozenset[ev.CallId]:
        return frozenset(self.state.attached.listeners.intersection(self.state.attached.of(key)))
