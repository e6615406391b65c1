"""What the core wants done. `Put`, `Drop` and `Advance` are recorded before any other is carried out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from slurm_interleave.client.core.errors import InterleaveError
from slurm_interleave.orchestrator.core.events import AbsenceCheck, CallId, Cancel, HoldCheck, Wake
from slurm_interleave.sql.rows import Key, Lease, Part, Row


class Verb(str, Enum):
    """What an agent does to a context."""

    SNAPSHOT = "snapshot"  # device to host memory
    RESTORE = "restore"  # and back
    DISCARD = "discard"  # forget both


@dataclass(frozen=True)
class Put:
    """Remember *row*, in place of an earlier one with the same key; *new*: a log should say so."""

    row: Row
    new: bool = True


@dataclass(frozen=True)
class Drop:
    """Forget *row*."""

    row: Row


@dataclass(frozen=True)
class Advance:
    """Move the cluster's epoch; whoever finds another *before* has been replaced."""

    before: int
    after: int


@dataclass(frozen=True)
class Operate:
    """Tell an agent to move a context. Repeating it with the same *operation* is harmless."""

    operation: str
    verb: Verb
    node: str
    job_id: str
    attempt: str
    after: tuple[str, ...] = ()  # operations on the same node that must have succeeded before
    beside: bool = False  # other contexts may be on the devices


@dataclass(frozen=True)
class CancelOperation:
    """Tell an agent to stop an operation and undo it; without a number, whatever it does to that job."""

    node: str
    job_id: str
    operation: str = ""


@dataclass(frozen=True)
class Stop:
    """Tell an agent to kill a process of an interleaved job, which uses a device that it does not hold."""

    node: str
    job_id: str
    attempt: str
    pid: int


@dataclass(frozen=True)
class Grant:
    """Answer *calls*: the member holds its devices, and so do those of *also*."""

    lease: Lease
    calls: frozenset[CallId]
    also: tuple[Lease, ...] = ()


@dataclass(frozen=True)
class Refuse:
    """Answer *calls*: there will be no grant."""

    calls: frozenset[CallId]
    error: InterleaveError


@dataclass(frozen=True)
class Cleared:
    """Answer *calls*: the fault is over; *lost* is what was discarded, as it was before."""

    calls: frozenset[CallId]
    lost: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Place:
    """Tell *calls* their place: how many jobs come first, and what is waited for."""

    calls: frozenset[CallId]
    ahead: int
    reason: str
    expected_s: float | None = None  # to the grant, by what is usual; filled in when it is told


@dataclass(frozen=True)
class Notice:
    """Tell the holder *key*: others wait; if *by* is not 0, he is to yield by then, or is made to."""

    key: Key
    waiting: int
    by: float = 0.0


@dataclass(frozen=True)
class GroupChanged:
    """Something that can be seen of *group* has changed."""

    group: str


@dataclass(frozen=True)
class Yielded:
    """The answer to a `Yield`: how many waiters the lease kept waiting."""

    pending: int


@dataclass(frozen=True)
class WakeMe:
    """Send *wake* when its time has come."""

    wake: Wake | HoldCheck | AbsenceCheck | Cancel


@dataclass(frozen=True)
class Note:
    """Something that a log should hold: a fixed *event* name and who it is about."""

    event: str
    key: Key
    text: str


Command = (
    Put
    | Drop
    | Advance
    | Operate
    | CancelOperation
    | Stop
    | Grant
    | Refuse
    | Cleared
    | Place
    | Notice
    | GroupChanged
    | Yielded
    | WakeMe
    | Note
)
