"""Sees what is recorded, what clients do and what is on devices, and knows nothing of how it is decided."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from slurm_interleave.client.core.states import SliceState
from slurm_interleave.orchestrator.core.book import Device
from slurm_interleave.orchestrator.core.core import Core
from slurm_interleave.sql import rows
from slurm_interleave.sql.rows import Key
from slurm_interleave.sql.store import RowId, RowType, row_id
from tests.simulation.disk import Changes


class Violation(AssertionError):
    """A promise was broken."""


@dataclass
class Turn:
    """A client that was told that it holds its devices, and has not begun to yield."""

    key: Key
    epoch: int
    devices: frozenset[Device]
    lives: bool = True  # else Slurm has given the job up, which ends its turn with it


@dataclass
class Observer:
    """The promises. The first that is broken is kept in `broken`."""

    in_order: bool  # the policy is first come, first served
    is_heard: Callable[[Key], bool]  # whether the orchestrator has heard the member's call for a while
    rows: defaultdict[type[rows.Row], dict[RowId, Any]] = field(default_factory=lambda: defaultdict(dict))
    epoch: int = 0
    slices: dict[int, rows.Slice] = field(default_factory=dict)
    turns: dict[Key, Turn] = field(default_factory=dict)
    newest: dict[Device, tuple[int, Key | None]] = field(default_factory=dict)
    told: set[int] = field(default_factory=set)
    forced: bool = False  # rules may take leases
    broken: str = ""

    def violated(self, text: str) -> None:
        self.broken = self.broken or text

    # What is recorded.

    def committed(self, changes: Changes, epoch: int) -> None:
        """A transaction counts."""
        if epoch < self.epoch:
            self.violated(f"epoch {epoch} after {self.epoch}")
        leases = [row for row in changes.values() if isinstance(row, rows.Lease)]
        fresh = [lease for lease in leases if row_id(lease) not in self.rows[rows.Lease]]
        self._all_or_none(fresh)
        if fresh and self.in_order:
            self._nobody_was_passed(changes, fresh)
        self._write(changes, epoch)
        self.epoch = epoch
        for lease in fresh:
            self._granted(lease)
        if leases or any(isinstance(row, rows.Part) for row in changes.values()):
            self._one_holder_a_device()

    def _write(self, changes: Changes, epoch: int) -> None:
        for number, row in changes.items():
            if isinstance(row, rows.Slice):
                self._ended(row, epoch)
            elif row is None:
                self.rows[number[0]].pop(number, None)
            else:
                self.rows[number[0]][number] = row

    def _granted(self, lease: rows.Lease) -> None:
        if lease.epoch in self.slices:
            self.violated(f"epoch {lease.epoch} is granted again")
        if lease.epoch > self.epoch:
            self.violated(f"epoch {lease.epoch} is granted, which is not recorded: {self.epoch} is")

    def _ended(self, ended: rows.Slice, epoch: int) -> None:
        if ended.epoch in self.slices:
            self.violated(f"lease {ended.epoch} has two slices")
        if ended.epoch > epoch:
            self.violated(f"slice of epoch {ended.epoch}, which was not granted yet: {epoch} was")
        self.slices[ended.epoch] = ended
        turn = self.turns.get(Key(ended.job_id, ended.group))
        taken = self.forced and ended.state is SliceState.REVOKED
        if turn is not None and taken:
            turn.lives = False
        elif turn is not None and turn.epoch == ended.epoch and turn.lives:
            self.violated(f"lease {ended.epoch} ended ({ended.state.value}) while {turn.key} uses it")

    def devices(self, key: Key) -> list[Device]:
        """Return the devices of a member, by its rows."""
        return [
            Device(part.node, minor)
            for part in self.of(rows.Part)
            if part.job_id == key.job_id and part.group == key.group
            for minor in part.devices
        ]

    def of(self, kind: type[RowType]) -> Iterable[RowType]:
        """Return all rows of a kind."""
        return self.rows[kind].values()

    def _one_holder_a_device(self) -> None:
        held: dict[Device, Key] = {}
        for row in self.of(rows.Lease):
            key = Key(row.job_id, row.group)
            for device in self.devices(key):
                if held.setdefault(device, key) != key:
                    self.violated(f"{device} is held by {held[device]} and by {key}")

    def _all_or_none(self, fresh: Iterable[rows.Lease]) -> None:
        """Who waits for several groups at once is granted all of them, or none."""
        granted = {Key(lease.job_id, lease.group) for lease in fresh}
        for key in granted:
            waiter = self._waiter_of(key)
            if waiter is not None and not granted.issuperset(waiter.keys):
                self.violated(f"{key} is granted without {set(waiter.keys) - granted}")

    def _waiter_of(self, key: Key) -> rows.Waiter | None:
        return next((row for row in self.of(rows.Waiter) if key in row.keys), None)

    def _nobody_was_passed(self, changes: Changes, fresh: Iterable[rows.Lease]) -> None:
        """Whoever waits on for one of the devices has come later."""
        holders = {row.job_id for row in self.of(rows.Lease)}
        for lease in fresh:
            key = Key(lease.job_id, lease.group)
            own = self._waiter_of(key)
            if key.job_id in holders:
                continue  # who holds may pass those who wait for what it holds
            mine = {device for member in (own.keys if own else (key,)) for device in self.devices(member)}
            for row in self.of(rows.Waiter):
                if row is own or changes.get(row_id(row), row) is None:
                    continue
                earlier = own is None or row.seq < own.seq
                theirs = {device for member in row.keys for device in self.devices(member)}
                if earlier and mine & theirs and self.is_heard(row.keys[0]):
                    self.violated(f"{key} is granted before {row.keys}, which has waited longer")

    # What an orchestrator makes of it.

    def restarted(self, core: Core) -> None:
        """A new orchestrator has read what was recorded: same holders, same queues."""
        leases = {(row.job_id, row.group): row.epoch for row in self.of(rows.Lease)}
        found = {tuple(key): lease.epoch for key, lease in core.state.leases.items()}
        if leases != found:
            self.violated(f"holders after a restart: {found}; before: {leases}")
        waiters = sorted(self.of(rows.Waiter), key=lambda w: w.seq)
        queues: dict[Device, list[Key]] = {}
        for waiter in waiters:
            for device in (device for key in waiter.keys for device in self.devices(key)):
                queues.setdefault(device, []).append(waiter.keys[0])
        for device, queue in queues.items():
            if list(core.state.book.queue(device)) != queue:
                now = list(core.state.book.queue(device))
                self.violated(f"queue of {device} after a restart: {now}; before: {queue}")

    # What clients do.

    def entered(self, key: Key, epoch: int, devices: frozenset[Device]) -> None:
        """A client was told that its job holds its devices in a group."""
        # By force a lease goes on under another epoch.
        turn = Turn(key, epoch, devices, lives=epoch not in self.slices)
        for other in self.turns.values():
            if turn.lives and other.key.job_id != key.job_id and other.lives and other.devices & devices:
                self.violated(f"{key} (epoch {epoch}) and {other.key} (epoch {other.epoch}) both hold")
        for device in devices if turn.lives and not self.forced else ():
            before, whose = self.newest.get(device, (0, None))
            if epoch < before or (epoch == before and whose != key):
                self.violated(f"{device}: {key} has epoch {epoch} after epoch {before} of {whose}")
            self.newest[device] = epoch, key
        if epoch in self.slices and not self.forced:
            self.violated(f"{key} was told epoch {epoch}, which has ended")
        if epoch > self.epoch:
            self.violated(f"{key} was told epoch {epoch}, which is not recorded")
        self.told.add(epoch)
        self.turns[key] = turn

    def left(self, job: str) -> None:
        """Its client is no more."""
        for key in [key for key in self.turns if key.job_id == job]:
            del self.turns[key]

    def yields(self, job: str, group: str) -> None:
        """It begins to yield. A slow yield may outlive its process, and ends no turn of the next one."""
        self.turns.pop(Key(job, group), None)

    def given_up(self, job: str) -> None:
        """Slurm counts the job as over from now on; its processes may live some moments longer."""
        for turn in self._turns_of(job):
            turn.lives = False

    def saved(self, job: str) -> None:
        """The processes of a job are on disk: when they go on they hold no devices."""
        for turn in self._turns_of(job):
            if turn.lives:
                self.violated(f"{turn.key} is saved while it uses lease {turn.epoch}")

    def _turns_of(self, job: str) -> list[Turn]:
        return [turn for key, turn in self.turns.items() if key.job_id == job]

    def at_the_end(self) -> None:
        """All jobs are over."""
        if self.slices.keys() != set(range(1, self.epoch + 1)):
            missing = sorted(set(range(1, self.epoch + 1)) - self.slices.keys())
            self.violated(f"granted leases without a slice: {missing}")
        left = [row for kind in self.rows.values() for row in kind.values()]
        if left:
            self.violated(f"rows that nobody needs: {left}")
