"""The state that decisions are made on. Each change of a row is emitted as a command to remember it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from slurm_interleave.client.core.errors import InterleaveError, JobFaulted
from slurm_interleave.client.core.states import YIELDS, Attendance, Context, SliceState
from slurm_interleave.orchestrator.core.attached import Asker, Attached
from slurm_interleave.orchestrator.core.book import Device, DeviceBook
from slurm_interleave.orchestrator.core.commands import Advance, Command, Drop, Note, Put, Refuse, Verb
from slurm_interleave.orchestrator.core.company import UNSHARED, Company, Shared
from slurm_interleave.orchestrator.core.drivers import Drivers
from slurm_interleave.orchestrator.core.events import CallId
from slurm_interleave.orchestrator.core.pauses import Pauses
from slurm_interleave.orchestrator.core.remembered import Remembered
from slurm_interleave.orchestrator.core.slices import Ended, slice_of
from slurm_interleave.orchestrator.core.tokens import Tokens
from slurm_interleave.sql.rows import Key, Lease, Member, Part, Slice, Waiter

OFF_DEVICE = frozenset({Context.NONE, Context.SAVED})
IN_MOTION = frozenset({Context.SAVING, Context.RESTORING, Context.UNKNOWN})  # may be there, cannot be moved


class State:
    """Rows, the indexes over them, and the devices whose queues must be looked at again."""

    def __init__(self, remembered: Remembered) -> None:
        self.epoch = remembered.epoch
        self.members: dict[Key, Member] = {}
        self.parts: dict[Key, dict[str, Part]] = {}
        self._devices: dict[Key, Sequence[Device]] = {}  # of its parts, since it is asked for often
        self.groups: dict[str, dict[Key, None]] = {}
        self.on_node: dict[str, dict[Key, None]] = {}
        self.tokens = Tokens()
        self.waiters: dict[Key, Waiter] = {}
        self.askers: dict[Key, Asker] = {}  # of each waiter
        self.claims: dict[Key, Key] = {}  # for each member that is waited for: the waiter
        self.heard: set[Key] = set()  # holders that have asked again since their grant
        self.told_at: dict[Key, float] = {}  # when a caller was told last of a lease
        self.foretold: dict[Key, tuple[float, float]] = {}  # when it asked; when to be granted, as told
        self.granted_with: dict[Key, tuple[Key, ...]] = {}  # for a waiter that was granted: its members
        self.keeping: dict[Key, frozenset[Key]] = {}  # leases that a job keeps while its waiter waits
        self.priorities: dict[str, int] = {}
        self.cautions: dict[Key, dict[str, str]] = {}  # what agents see, by node
        self.pauses = Pauses()
        self.jobs: dict[str, dict[Key, None]] = {}
        self.memory: dict[Device, int] = {}
        self.footprints: dict[tuple[Key, str], int] = {}  # bytes that a context last took on a node
        self.lingers: dict[Key, float] = {}  # until when a waiter lets the last holder come back
        self.took: dict[tuple[Key, Verb], float] = {}  # seconds that a context last took to move
        self.attended: dict[tuple[Key, str], tuple[Attendance, float]] = {}  # and since when
        self.ended: list[Ended] = []  # leases that ended in this event
        self.leases: dict[Key, Lease] = {}
        self.drivers = Drivers()
        self.yielded = dict(remembered.yielded)
        self.attached = Attached()
        self.nodes_up: set[str] = set()
        self.book = DeviceBook()
        self._company = Company()
        self.out: list[Command] = []
        self.dirty: dict[Device, None] = {}
        self.changed: dict[Key, None] = {}  # members of whom something that can be seen has changed
        self.unranked: dict[Key, None] = {}  # the same, since the waiters were last put in order
        self.seq = max((w.seq for w in remembered.waiters), default=0)
        self._load(remembered)

    def _load(self, remembered: Remembered) -> None:
        for member in remembered.members:
            self.put_member(member)
        for part in remembered.parts:
            moved = part.context in (Context.SAVING, Context.RESTORING)
            self.put_part(replace(part, context=Context.UNKNOWN) if moved else part)
        for lease in remembered.leases:
            self.put_lease(lease)
        for waiter in sorted(remembered.waiters, key=lambda w: w.seq):
            keeping = frozenset[Key]() if waiter.independent else self.leases_of(waiter.asker)
            self.put_waiter(waiter, keeping)
        self.out.clear()

    def _emit(self, change: Put | Drop, *members: Key) -> None:
        self.out.append(change)
        self.note_changed(*members)

    def note_changed(self, *members: Key) -> None:
        """Note that something that can be seen of *members* has changed."""
        for key in members:
            self.changed[key] = self.unranked[key] = None

    def take_changed(self) -> Iterable[Key]:
        """Return the members that have changed since the last call."""
        changed, self.changed = self.changed, {}
        return changed

    def devices(self, key: Key) -> Sequence[Device]:
        """Return the devices of *key* on all its nodes."""
        known = self._devices.get(key)
        if known is None:
            parts = self.parts.get(key, {}).values()
            known = [Device(part.node, minor) for part in parts for minor in part.devices]
            if parts:
                self._devices[key] = known
        return known

    def touch(self, devices: Iterable[Device]) -> None:
        """Mark *devices* for another look at their queues."""
        self.dirty.update(dict.fromkeys(devices))

    def put_member(self, member: Member) -> None:
        """Remember *member*."""
        key = Key(member.job_id, member.group)
        self.members[key] = member
        self.groups.setdefault(member.group, {})[key] = None
        self.jobs.setdefault(member.job_id, {})[key] = None
        self._emit(Put(member), key)

    def drop_member(self, key: Key) -> None:
        """Forget a member that has no part any more."""
        member = self.members.pop(key)
        self.parts.pop(key, None)
        self._devices.pop(key, None)
        self.yielded.pop(key, None)
        self._company.forget(key)
        self.foretold.pop(key, None)
        self.cautions.pop(key, None)
        for verb in Verb:
            self.took.pop((key, verb), None)
        for index, name in ((self.groups, member.group), (self.jobs, member.job_id)):
            del index[name][key]
            if not index[name]:
                del index[name]
        if member.job_id not in self.jobs:
            self.priorities.pop(member.job_id, None)
            self.pauses.forget(member.job_id)
        self._emit(Drop(member), key)

    def put_part(self, part: Part) -> None:
        """Remember *part* and where its device state is."""
        key, devices = Key(part.job_id, part.group), [Device(part.node, i) for i in part.devices]
        parts = self.parts.setdefault(key, {})
        before = parts.get(part.node)
        parts[part.node] = part
        if before is None or before.devices != part.devices:
            self._devices.pop(key, None)
            self.on_node.setdefault(part.node, {})[key] = None
        self.tokens.add(part)
        if part.context in OFF_DEVICE:
            self.book.vacate(key, devices)
        else:
            self.book.occupy(key, devices)
        self.touch(devices)
        self._emit(Put(part), key)

    def move_s(self, key: Key) -> float:
        """Return what it took last to save the context of *key* and to bring it back; 0: not known."""
        return self.took.get((key, Verb.SNAPSHOT), 0.0) + self.took.get((key, Verb.RESTORE), 0.0)

    def parts_on(self, node: str) -> list[Part]:
        """Return the parts on *node*."""
        return [self.parts[key][node] for key in self.on_node.get(node, ())]

    def set_context(self, key: Key, node: str, context: Context, size: int = 0, operation: str = "") -> None:
        """Change where the device state of *key* on *node* is; *size* counts while it is saved.

        While its agent saves the job's processes, it moves their state unasked: whatever was heard of it,
        nobody may take it for resident, after a restart neither.
        """
        if context is Context.RESIDENT and key not in self.leases:
            context = Context.UNKNOWN if self.pauses.is_being_saved(key.job_id, node) else context
        part = self.parts.get(key, {}).get(node)
        kept = size if context in (Context.SAVED, Context.RESTORING) else 0
        if kept:
            self.footprints[key, node] = kept
        if part is not None and (part.context, part.bytes, part.operation) != (context, kept, operation):
            changes: dict[str, Any] = {"context": context, "bytes": kept, "operation": operation}
            self.put_part(Part(**{**vars(part), **changes}))  # as `replace`, in a fifth of its time

    def drop_part(self, part: Part) -> None:
        """Forget *part*: the job is over there."""
        key, devices = Key(part.job_id, part.group), [Device(part.node, i) for i in part.devices]
        del self.parts[key][part.node]
        self._devices.pop(key, None)
        self.on_node[part.node].pop(key)
        self.footprints.pop((key, part.node), None)
        self.attended.pop((key, part.node), None)
        self.tokens.drop(part)
        self.pauses.go_on(part.job_id, part.node)
        self.book.vacate(key, devices)
        self.book.dequeue(self.claims.get(key, key), devices)
        self.touch(devices)
        self._emit(Drop(part), key)

    def claimed_devices(self, key: Key) -> Sequence[Device]:
        """Return the devices that waiter *key* waits for: those of all its groups."""
        waiter = self.waiters[key]
        if not waiter.also:
            return self.devices(key)
        return list(dict.fromkeys(d for member in waiter.keys for d in self.devices(member)))

    def claimed_with(self, key: Key) -> tuple[Key, ...]:
        """Return the members that *key* waits for as one waiter; itself if it does not wait."""
        return self.waiters[key].keys if key in self.waiters else (key,)

    def leases_of(self, job_id: str) -> frozenset[Key]:
        """Return the members that hold their devices for the job: its own, and those that it drives."""
        return self.drivers.leases_of(job_id).union(self.leases.keys() & self.jobs.get(job_id, ()))

    def put_waiter(self, waiter: Waiter, keeping: frozenset[Key] = frozenset()) -> None:
        """Queue a waiter, whose job keeps the leases *keeping* while it waits."""
        key = waiter.keys[0]
        self.waiters[key] = waiter
        self.claims.update(dict.fromkeys(waiter.keys, key))
        self.drivers.asks(key, waiter)
        self.keeping[key] = keeping
        devices = self.claimed_devices(key)
        self.book.enqueue(key, waiter.seq, devices)
        self.touch(devices)
        self._emit(Put(waiter), *waiter.keys)

    def drop_waiter(self, key: Key) -> frozenset[CallId]:
        """Take a member out of the queue; return the calls that wait for it."""
        devices = self.claimed_devices(key)
        waiter = self.waiters.pop(key)
        for member in waiter.keys:
            del self.claims[member]
        self.drivers.asks_no_more(key, waiter)
        del self.keeping[key]
        self.askers.pop(key, None)
        self.lingers.pop(key, None)
        self.book.dequeue(key, devices)
        self.touch(devices)
        self._emit(Drop(waiter), *waiter.keys)
        return self.attached.drop_all(key)

    def put_lease(self, lease: Lease) -> None:
        """Make a member the holder of its devices."""
        key = Key(lease.job_id, lease.group)
        self.leases[key] = lease
        self.drivers.put(key, lease)
        self.book.holders.update(dict.fromkeys(self.devices(key), key))
        self._emit(Put(lease), key)

    def hear(self, key: Key, by: str, name: str, at: float, *, alone: bool) -> None:
        """Note that the acquire *name* of job *by* is told of a lease that is held already."""
        lease, driver = self.leases[key], by if by != key.job_id else ""
        self.told_at[key] = at
        if not name or (name, driver) != (lease.heard_by, lease.driver):
            self.drivers.drop(key, lease)
            self.leases[key] = replace(lease, heard_by=name or lease.heard_by, alone=alone, driver=driver)
            self.drivers.put(key, self.leases[key])
            self.out.append(Put(self.leases[key], new=False))

    def next_epoch(self) -> int:
        """Return a new epoch, and remember that it is taken."""
        self.out.append(Advance(self.epoch, self.epoch + 1))
        self.epoch += 1
        return self.epoch

    def end_lease(self, key: Key, state: SliceState, at: float) -> None:
        """Turn the lease of *key* into a slice and free its devices."""
        lease = self.leases.pop(key)
        self.drivers.drop(key, lease)
        self.heard.discard(key)
        self.told_at.pop(key, None)
        self.attached.drop_all(key)
        self.touch(self.book.release(key, self.devices(key)))
        if state in YIELDS:
            self.yielded[key] = lease.told or lease.epoch
        self.ended.append(Ended(key, lease, at, state is SliceState.PAUSED))
        self._emit(Drop(lease), key)
        shared = self._company.ended(key, self.devices(key), lease.requested, at)
        self._emit(Put(self.slice_of(key, lease, state, at, shared)), key)

    def fault(self, key: Key, reason: str) -> None:
        """Give a member up: its device state is lost, or cannot be taken off its devices."""
        self.put_member(replace(self.members[key], fault=reason))
        self.note("member.faulted", key, reason)
        if key in self.claims:
            self.refuse(self.claims[key], JobFaulted(f"{key} is faulted: {reason}"))

    def refuse(self, key: Key, error: InterleaveError) -> None:
        """Take a member out of the queue and tell its callers why."""
        if calls := self.drop_waiter(key):
            self.out.append(Refuse(calls, error))

    def note(self, event: str, key: Key, text: str) -> None:
        """Ask for a line in the log."""
        self.out.append(Note(event, key, text))

    def slice_of(
        self, key: Key, lease: Lease, state: SliceState, ended: float, shared: Shared = UNSHARED
    ) -> Slice:
        """Return a lease of *key*, or what stands for one, as the report shows it."""
        devices = tuple(map(str, self.devices(key)))
        nodes = tuple(sorted(self.parts.get(key, {})))
        asked, expected = self.foretold.get(key, (None, 0.0))
        expected_s = max(expected - lease.requested, 0.0) if asked == lease.requested else -1.0
        return slice_of(self.members[key], nodes, devices, lease, state, ended, shared, expected_s)
