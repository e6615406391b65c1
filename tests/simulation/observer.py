"""Sees what is recorded, what clients do and what is on devices, and knows nothing of how it is decided."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from slurm_interleave.client.core.states import SliceState
from slurm_interleave.orchestrator.core.book import Device
from slurm_interleave.orchestrator.core.core import Core
from slurm_interleave.sql import rows
from slurm_interleave.sql.rows import Key
from slurm_interleave.sql.store import RowId, row_id
from tests.simulation.disk import Changes


class Violation(AssertionError):
    """A promise was broken."""


@dataclass
class Turn:
    """A client that was told that it holds its devices, and has not begun to yield."""

    job: str
    epoch: int
    devices: frozenset[Device]
    lives: bool = True  # else Slurm has given the job up, which ends its turn with it


@dataclass
class Observer:
    """The promises. The first that is broken is kept in `broken`."""

    in_order: bool  # the policy is first come, first served
    is_heard: Callable[[str], bool]  # whether the orchestrator has heard the job's call for a while
    rows: dict[RowId, rows.Row] = field(default_factory=dict)
    epoch: int = 0
    slices: dict[int, rows.Slice] = field(default_factory=dict)
    turns: dict[str, Turn] = field(default_factory=dict)
    newest: dict[Device, tuple[int, str]] = field(default_factory=dict)
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
        fresh = [lease for lease in leases if row_id(lease) not in self.rows]
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
                self.rows.pop(number, None)
            else:
                self.rows[number] = row

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
        turn = self.turns.get(ended.job_id)
        taken = self.forced and ended.state is SliceState.REVOKED
        if turn is not None and taken:
            turn.lives = False
        elif turn is not None and turn.epoch == ended.epoch and turn.lives:
            self.violated(f"lease {ended.epoch} ended ({ended.state.value}) while job {turn.job} uses it")

    def devices(self, key: Key) -> list[Device]:
        """Return the devices of a member, by its rows."""
        parts = self.of(rows.Part)
        mine = (part for part in parts if (part.job_id, part.group) == key)
        return [Device(part.node, minor) for part in mine for minor in part.devices]

    def of(self, kind: type[rows.Part]) -> Iterable[rows.Part]:
        """Return all rows of a kind."""
        return (row for row in self.rows.values() if isinstance(row, kind))

    def _one_holder_a_device(self) -> None:
        held: dict[Device, Key] = {}
        for row in self.rows.values():
            if isinstance(row, rows.Lease):
                key = Key(row.job_id, row.group)
                for device in self.devices(key):
                    if held.setdefault(device, key) != key:
                        self.violated(f"{device} is held by {held[device]} and by {key}")

    def _nobody_was_passed(self, changes: Changes, fresh: Iterable[rows.Lease]) -> None:
        """Whoever waits on for one of the devices has come later."""
        for lease in fresh:
            key = Key(lease.job_id, lease.group)
            own = self.rows.get((rows.Waiter, key))
            mine = set(self.devices(key))
            for number, row in self.rows.items():
                waits_on = isinstance(row, rows.Waiter) and changes.get(number, row) is not None
                if not waits_on or not isinstance(row, rows.Waiter) or row is own:
                    continue
                earlier = not isinstance(own, rows.Waiter) or row.seq < own.seq
                other = Key(row.job_id, row.group)
                if earlier and mine & set(self.devices(other)) and self.is_heard(row.job_id):
                    self.violated(f"{key} is granted before {other}, which has waited longer")

    # What an orchestrator makes of it.

    def restarted(self, core: Core) -> None:
        """A new orchestrator has read what was recorded: same holders, same queues."""
        leases = {
            (row.job_id, row.group): row.epoch for row in self.rows.values() if isinstance(row, rows.Lease)
        }
        found = {tuple(key): lease.epoch for key, lease in core.state.leases.items()}
        if leases != found:
            self.violated(f"holders after a restart: {found}; before: {leases}")
        waiters = sorted(
            (row for row in self.rows.values() if isinstance(row, rows.Waiter)), key=lambda w: w.seq
        )
        queues: dict[Device, list[Key]] = {}
        for waiter in waiters:
            for device in self.devices(Key(waiter.job_id, waiter.group)):
                queues.setdefault(device, []).append(Key(waiter.job_id, waiter.group))
        for device, queue in queues.items():
            if list(core.state.book.queue(device)) != queue:
                now = list(core.state.book.queue(device))
                self.violated(f"queue of {device} after a restart: {now}; before: {queue}")

    # What clients do.

    def entered(self, job: str, epoch: int, devices: frozenset[Device]) -> None:
        """A client was told that its job holds its devices."""
        # By force a lease goes on under another epoch.
        turn = Turn(job, epoch, devices, lives=epoch not in self.slices)
        for other in self.turns.values():
            if turn.lives and other.job != job and other.lives and other.devices & devices:
                self.violated(
                    f"job {job} (epoch {epoch}) and job {other.job} (epoch {other.epoch}) both hold"
                )
        for device in devices if turn.lives and not self.forced else ():
            before, whose = self.newest.get(device, (0, ""))
            if epoch < before or (epoch == before and whose != job):
                self.violated(f"{device}: job {job} has epoch {epoch} after epoch {before} of job {whose}")
            self.newest[device] = epoch, job
        if epoch in self.slices and not self.forced:
            self.violated(f"job {job} was told epoch {epoch}, which has ended")
        if epoch > self.epoch:
            self.violated(f"job {job} was told epoch {epoch}, which is not recorded")
        self.told.add(epoch)
        self.turns[job] = turn

    def left(self, job: str) -> None:
        """Its client is no more."""
        self.turns.pop(job, None)

    def yields(self, job: str) -> None:
        """It begins to yield. A slow yield may outlive its process, and ends no turn of the next one."""
        self.left(job)

    def given_up(self, job: str) -> None:
        """Slurm counts the job as over from now on; its processes may live some moments longer."""
        if job in self.turns:
            self.turns[job].lives = False

    def at_the_end(self) -> None:
        """All jobs are over."""
        if self.slices.keys() != set(range(1, self.epoch + 1)):
            missing = sorted(set(range(1, self.epoch + 1)) - self.slices.keys())
            self.violated(f"granted leases without a slice: {missing}")
        if self.rows:
            self.violated(f"rows that nobody needs: {list(self.rows.values())}")
