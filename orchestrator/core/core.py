"""The grant rule: events in, commands out. No clock, no I/O, no logging.

The unit of exclusion is the physical device, whatever group a job named. A waiter is granted when it
conflicts with no holder and with no earlier waiter, and its own context alone is on its devices: FIFO
without head-of-line blocking across groups, free of starvation.
"""

from __future__ import annotations

from slurm_interleave.client.core.errors import (
    JobEnded,
    JobFaulted,
    NotRegistered,
    NotTheHolder,
    StaleLease,
    UnknownGroup,
)
from slurm_interleave.client.core.states import Context, SliceState
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.book import Device
from slurm_interleave.orchestrator.core.commands import Command, Grant, Place, WakeMe, Yielded
from slurm_interleave.orchestrator.core.nodes import Nodes
from slurm_interleave.orchestrator.core.state import IN_MOTION, Remembered, State
from slurm_interleave.orchestrator.core.status import GroupState, GroupView, view
from slurm_interleave.orchestrator.core.switches import Switches
from slurm_interleave.sql.rows import Key, Lease, Waiter

# After a restart a waiter's caller has this long to come back before it loses its place.
RETURN_GRACE_S = 10.0
# Only the head of a queue is told each change of its place; the others are told their first one.
TOLD_PLACES = 8


class Core:
    """All groups of one cluster."""

    def __init__(self, remembered: Remembered, instance: int) -> None:
        self.state = State(remembered)
        self.switches = Switches(self.state, instance)
        self.nodes = Nodes(self.state, self.switches)
        self._told: dict[Key, tuple[int, str]] = {}
        self._asked: dict[Key, None] = {}
        self._group_states: dict[str, tuple[GroupState, float]] = {}

    def start(self, at: float) -> list[Command]:
        """Begin after a restart: waiters without a caller get a time to come back."""
        for waiter in self.state.waiters.values():
            wake = ev.Wake(at + RETURN_GRACE_S, waiter.job_id, waiter.group, waiter.seq)
            self.state.out.append(WakeMe(wake))
        return self._finish(at)

    def handle(self, event: ev.Event) -> list[Command]:
        """Take *event* and return what is to be done.

        Raises an `InterleaveError` for a call that is refused; then nothing has changed.
        """
        match event:
            case ev.Acquire():
                self._acquire(event)
            case ev.Yield():
                self._yield(event)
            case ev.Cancel():
                self._cancel(event)
            case ev.Wake():
                self._wake(event)
            case _:
                self.nodes.handle(event)
        return self._finish(event.at)

    def find(self, job_id: str, group: str) -> Key:
        """Return the live member; raises `UnknownGroup` or `NotRegistered`."""
        key = Key(job_id, group)
        if group not in self.state.groups:
            raise UnknownGroup(
                f"group {group} is not known: no job of it is registered; "
                f"submit with --interleave-group={group}"
            )
        if key not in self.state.members or self.state.members[key].over:
            raise NotRegistered(
                f"job {job_id} is not registered in group {group}; check interleave-agent on the job's nodes"
            )
        return key

    def _acquire(self, event: ev.Acquire) -> None:
        state, key = self.state, self.find(event.job_id, event.group)
        if state.members[key].fault:
            raise JobFaulted(f"{key} is faulted: {state.members[key].fault}")
        lease = state.leases.get(key)
        if lease is not None:
            # Not attached: the lease was not made for this call, so its end must not end the lease.
            state.out.append(Grant(lease, frozenset({event.call})))
            return
        self._told.pop(key, None)
        self._asked[key] = None
        if key not in state.waiters:
            state.seq += 1
            state.put_waiter(Waiter(key.job_id, key.group, state.seq, event.phase, event.at))
        state.attach(key, {event.call})
        state.touch(state.devices(key))

    def _yield(self, event: ev.Yield) -> None:
        state, key = self.state, Key(event.job_id, event.group)
        lease = state.leases.get(key)
        if lease is not None and event.epoch in (0, lease.epoch):
            state.out.append(Yielded(state.book.depth(state.devices(key))))
            state.end_lease(key, SliceState.YIELDED, event.at)
            return
        self._yield_again(event, lease)

    def _yield_again(self, event: ev.Yield, lease: Lease | None) -> None:
        """A yield without the lease: repeated, late, or of somebody else's."""
        key = self.find(event.job_id, event.group)
        state = self.state
        if event.epoch and state.yielded.get(key) != event.epoch:
            now = f"lease {lease.epoch} is held now" if lease else "no lease is held"
            raise StaleLease(f"{key}: lease {event.epoch} has ended and {now}; acquire again")
        holder = next((k for k in state.groups[event.group] if k in state.leases), None)
        if not event.epoch and key not in state.yielded and holder is not None:
            raise NotTheHolder(f"{key}: the devices are held by another job of the group; nothing changed")
        state.out.append(Yielded(state.book.depth(state.devices(key))))

    def _cancel(self, event: ev.Cancel) -> None:
        """Forget a caller; a waiter or a new holder whom nobody waits for any more gives its place back."""
        state, key = self.state, self.state.detach(event.call)
        if key is None or state.calls.get(key):
            return
        if key in state.waiters:
            state.drop_waiter(key)
            self.switches.costs.pop(key, None)
        elif key in state.leases:
            state.end_lease(key, SliceState.YIELDED, event.at)

    def _wake(self, event: ev.Wake) -> None:
        state, key = self.state, Key(event.job_id, event.group)
        self.switches.back_off_over(key, event.at)
        waiter = state.waiters.get(key)
        if waiter is not None and waiter.seq == event.seq and not state.calls.get(key):
            state.refuse(key, JobEnded(f"{key}: its caller did not come back"))
        state.touch(state.devices(key))

    def _finish(self, at: float) -> list[Command]:
        """Grant and switch what can be, then return the commands of this event."""
        state, looked_at = self.state, dict[Device, None]()
        while state.dirty:
            device = next(iter(state.dirty))
            del state.dirty[device]
            looked_at[device] = None
            key = state.book.first(device)
            if key is not None:
                self._try(key, at)
        self._tell_places(looked_at)
        self._note_group_states(at)
        out, state.out = state.out, []
        return out

    def _try(self, key: Key, at: float) -> None:
        """Grant *key*, or begin the switch that it needs, if nothing stands in its way."""
        devices = self.state.devices(key)
        if not self.state.calls.get(key) or self._obstacle(key, devices, at):
            return
        out, own = self._foreign_contexts(key, devices), self.state.parts[key].values()
        if out or any(part.context is Context.SAVED for part in own):
            self.switches.begin(key, out, at)
        else:
            self._grant(key, at)

    def _obstacle(self, key: Key, devices: list[Device], at: float) -> str:
        """Return why *key* cannot have its devices now; empty if it can."""
        state, book = self.state, self.state.book
        if not state.complete(key):
            missing = sorted(set(state.members[key].nodes) - state.parts[key].keys())
            return f"node {', '.join(missing)} has not registered the job"
        for device in devices:
            if book.first(device) != key or device in book.holders or device in book.switching:
                return "other jobs come first"
        if key in self.switches.active:
            return "the switch of its earlier acquire is not over"
        if self.switches.not_before.get(key, 0.0) > at:
            return "a switch failed and is tried again soon"
        return self._context_obstacle(key, devices)

    def _context_obstacle(self, key: Key, devices: list[Device]) -> str:
        state = self.state
        for device in devices:
            for other in state.book.occupants(device):
                context = state.parts[other][device.node].context
                if context in IN_MOTION:
                    return f"the state of job {other.job_id} on node {device.node} is not known yet"
                if other != key and (context is Context.FAULTED or state.members[other].fault):
                    return f"job {other.job_id} is faulted and keeps device {device} until it ends"
        warm = all(part.context is Context.RESIDENT for part in state.parts[key].values())
        away = sorted({device.node for device in devices} - state.nodes_up)
        return f"the agent of node {', '.join(away)} is away" if away and not warm else ""

    def _foreign_contexts(self, key: Key, devices: list[Device]) -> list[tuple[Key, str]]:
        """Return the members and nodes whose device state is on *devices*, other than *key* itself."""
        found = {
            (other, device.node): None
            for device in devices
            for other in self.state.book.occupants(device)
            if other != key
        }
        return list(found)

    def _grant(self, key: Key, at: float) -> None:
        state = self.state
        waiter, cost = state.waiters[key], self.switches.costs.pop(key, None)
        self._told.pop(key, None)
        calls = state.drop_waiter(key)
        lease = Lease(
            key.job_id,
            key.group,
            epoch=state.next_epoch(),
            phase=waiter.phase,
            requested=waiter.requested,
            granted=at,
            switched=cost is not None,
            restored=cost is not None and cost.restored,
            switch_s=cost.ended - cost.began if cost else 0.0,
            snapshot_s=cost.snapshot_s if cost else 0.0,
            restore_s=cost.restore_s if cost else 0.0,
            switch_bytes=cost.bytes if cost else 0,
        )
        state.put_lease(lease)
        # Kept until the lease ends: if they all vanish unanswered, the grant is given back.
        state.attach(key, calls)
        for node in list(state.parts[key]):
            state.set_context(key, node, Context.RESIDENT)
        state.out.append(Grant(lease, calls))

    def _tell_places(self, devices: dict[Device, None]) -> None:
        """Tell those at the head of the touched queues, and who has just asked, where they stand now."""
        heads, self._asked = self._asked, {}
        for device in devices:
            for _, key in zip(range(TOLD_PLACES), self.state.book.queue(device), strict=False):
                heads[key] = None
        for key in (key for key in heads if key in self.state.waiters):
            place = self.place(key)
            if self.state.calls.get(key) and place != self._told.get(key):
                self._told[key] = place
                self.state.out.append(Place(frozenset(self.state.calls[key]), *place))

    def group_state(self, group: str) -> tuple[GroupState, float]:
        """Return how *group* stands and since when."""
        return self._group_states.get(group, (GroupState.IDLE, 0.0))

    def view(self, group: str) -> GroupView:
        """Return *group* as one lock."""
        return view(self.state, self.switches.active, group)

    def _note_group_states(self, at: float) -> None:
        for group in self.state.changed_groups:
            if group not in self.state.groups:
                self._group_states.pop(group, None)
                continue
            now = self.view(group).state
            if group not in self._group_states or self._group_states[group][0] is not now:
                self._group_states[group] = (now, at)
        self.state.changed_groups.clear()

    def place(self, key: Key) -> tuple[int, str]:
        """Return how many jobs come before waiter *key*, and what it waits for beside them."""
        ahead: dict[Key, None] = {}
        for device in self.state.devices(key):
            for earlier in self.state.book.queue(device):
                if earlier == key:
                    break
                ahead[earlier] = None
            holder = self.state.book.holders.get(device)
            if holder is not None:
                ahead[holder] = None
        if ahead:
            return len(ahead), ""
        if key in self.switches.active:
            return 0, "its turn has come, device state is being moved"
        return 0, self._obstacle(key, self.state.devices(key), 0.0)
