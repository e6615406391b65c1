"""The rows that the orchestrator remembers, as plain values: its core thinks in them, `store` writes them.

Times are seconds since the Unix epoch, durations seconds. The first field(s) named in `KEY` identify a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

from slurm_interleave.client.core.states import Context, SliceState


class Key(NamedTuple):
    """A member: which job, in which group."""

    job_id: str
    group: str

    def __str__(self) -> str:
        return f"job {self.job_id} of group {self.group}"


@dataclass(frozen=True)
class Member:
    """A job in a group, as its nodes' agents registered it."""

    KEY: ClassVar = ("job_id", "group")
    job_id: str
    group: str
    role: str = ""
    uid: int = 0
    user: str = ""
    account: str = ""
    partition: str = ""
    name: str = ""
    backend: str = ""
    nodes: tuple[str, ...] = ()  # all nodes of the job where known
    fault: str = ""  # why its device state is lost; empty: it is not
    over: bool = False  # the job has ended; some node is still cleaning up
    profile: str = ""  # what is learned of it goes by this name; empty: by its account, name and devices
    max_slowdown: int = -1  # percent that it may become slower by sharing; -1: as the site says


@dataclass(frozen=True)
class Part:
    """A member on one node: its devices there and where its device state is."""

    KEY: ClassVar = ("job_id", "group", "node")
    job_id: str
    group: str
    node: str
    attempt: str
    devices: tuple[int, ...]
    context: Context = Context.NONE
    bytes: int = 0  # of the saved context
    operation: str = ""  # the snapshot or restore under way: written before the agent is told
    token_sha256: str = ""  # hex; whoever shows the token is the job
    restarts: int = -1  # how often Slurm had put the job back into its queue; -1: not said
    started: float = 0.0  # when the attempt began, by its node's clock; 0: not said


@dataclass(frozen=True)
class Waiter:
    """A place in the queue for one or more groups of a job at once; *seq* gives the order."""

    KEY: ClassVar = ("job_id", "group")
    job_id: str
    group: str
    seq: int
    phase: str
    requested: float
    also: tuple[str, ...] = ()  # the other groups; JOB/GROUP where another component is the member
    told: int = 0  # the epoch that the job knows, where a rule took its lease: nobody calls, and it goes on
    independent: bool = False  # other leases of the job do not wait for it
    driver: str = ""  # the component of the same heterogeneous job that asks; empty: the job itself

    @staticmethod
    def also_of(keys: Sequence[Key]) -> tuple[str, ...]:
        """Return how a waiter for *keys* names those after the first."""
        job_id = keys[0].job_id
        return tuple(key.group if key.job_id == job_id else f"{key.job_id}/{key.group}" for key in keys[1:])

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        """All members that it is to make holders."""
        others = (name.rpartition("/") for name in self.also)
        return Key(self.job_id, self.group), *(Key(job or self.job_id, group) for job, _, group in others)

    @property
    def asker(self) -> str:
        """The job that asks: itself, or its driver."""
        return self.driver or self.job_id

    @cached_property
    def jobs(self) -> tuple[str, ...]:
        """The jobs whose members these are, and first the one that asks."""
        return tuple(dict.fromkeys((self.asker, *(key.job_id for key in self.keys))))


@dataclass(frozen=True)
class Lease:
    """The live right of a member to its devices; *epoch* is the fencing token."""

    KEY: ClassVar = ("job_id", "group")
    job_id: str
    group: str
    epoch: int
    phase: str
    requested: float
    granted: float
    switched: bool = False  # another context had to go, or the own one to come back
    restored: bool = False
    switch_s: float = 0.0  # wall time of the switch
    snapshot_s: float = 0.0  # of it, the slowest node's snapshot
    restore_s: float = 0.0  # and the slowest node's restore
    switch_bytes: int = 0
    told: int = 0  # the epoch that the job knows, where a rule took its lease and gave it a new one
    heard_by: str = ""  # the acquire, by its name, that was told of it last; empty: it has none
    alone: bool = False  # no other was told of it
    driver: str = ""  # the component of the same heterogeneous job that has asked; empty: the job itself

    @property
    def asker(self) -> str:
        """The job that has asked, and yields: itself, or its driver."""
        return self.driver or self.job_id

    @property
    def known(self) -> tuple[int, ...]:
        """The epochs by which the job may end it."""
        return (self.epoch, self.told) if self.told else (self.epoch,)


@dataclass(frozen=True)
class Slice:
    """A turn of a job: an ended lease, or one that lasts (*ended* 0) or waits (*granted* 0 too)."""

    KEY: ClassVar = ("epoch",)
    epoch: int
    job_id: str
    group: str
    role: str
    uid: int
    user: str
    account: str
    partition: str
    name: str
    backend: str
    nodes: tuple[str, ...]
    devices: tuple[str, ...]  # node/index
    phase: str
    state: SliceState
    requested: float
    granted: float
    ended: float
    switched: bool
    switch_s: float
    snapshot_s: float
    restore_s: float
    switch_bytes: int
    off_s: float = 0.0  # from the end of its last turn to this request
    share: float = 0.0  # devices, each divided among those that had turns on it since then; 0: not known
    partners: tuple[str, ...] = ()  # the other jobs among them
    comment: str = ""  # why it ended, where that was not by its job
    profile: str = ""  # what is learned of it goes by this name; empty: by its account, name and devices
    expected_s: float = -1.0  # how long it was to wait, as was told first; below 0: nothing was told


class Day(NamedTuple):
    """What the turns of a member add up to that ended on one day; see `days`. A report reads thousands."""

    day: int  # 20261129: the date where the orchestrator is
    job_id: str
    group: str
    # As of the last turn.
    epoch: int
    role: str
    uid: int
    user: str
    account: str
    partition: str
    name: str
    backend: str
    nodes: tuple[str, ...]
    devices: tuple[str, ...]
    phase: str
    state: SliceState
    partners: tuple[str, ...]
    comment: str
    # The first request and grant, and the last end.
    requested: float
    granted: float
    ended: float
    # Sums, but for the longest wait.
    turns: int
    switches: int
    faults: int
    held_s: float
    waited_s: float
    max_wait_s: float
    switch_s: float
    snapshot_s: float
    restore_s: float
    overhead_s: float
    switch_bytes: float
    # Device-seconds; see `client.core.gains`.
    held_device_s: float
    waited_device_s: float
    exclusive_device_s: float
    occupied_device_s: float
    # Of the turns that were told at first how long they would wait: what was told, and by how much it missed.
    foretold: int = 0
    expected_s: float = 0.0
    missed_s: float = 0.0


@dataclass(frozen=True)
class Reservation:
    """The book of placement: which devices, the same on each node, a job gets."""

    KEY: ClassVar = ("job_id",)
    job_id: str
    group: str
    role: str
    nodes: tuple[str, ...]
    devices: tuple[int, ...]
    lane: str


Row = Member | Part | Waiter | Lease | Slice | Reservation
