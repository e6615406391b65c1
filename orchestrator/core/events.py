"""What happens to the core. Each event carries its time, *at*, in seconds since the Unix epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NewType

from slurm_interleave.client.core.states import Attendance, Context

CallId = NewType("CallId", int)


@dataclass(frozen=True)
class Registration:
    """A job on a node, as its agent reports it."""

    job_id: str
    group: str
    attempt: str
    devices: tuple[int, ...]
    role: str = ""
    uid: int = 0
    user: str = ""
    account: str = ""
    partition: str = ""
    name: str = ""
    backend: str = ""
    nodes: tuple[str, ...] = ()
    context: Context = Context.NONE
    bytes: int = 0
    token_sha256: str = ""
    fault: str = ""
    priority: int = 0  # of a job without Slurm; 0: none is said
    attendance: Attendance = Attendance.UNKNOWN
    restarts: int = -1  # how often Slurm had put the job back into its queue; -1: not said
    started: float = 0.0  # by its node's clock; 0: not said
    resumed_token_sha256: str = ""  # that processes know which were saved in an earlier run
    being_saved: bool = False  # by a drain, at the moment of a hello
    profile: str = ""
    max_slowdown: int = -1  # percent; -1: not said
    caution: str = ""  # what is seen on its node that keeps it from being saved


@dataclass(frozen=True)
class NodeUp:
    """An agent connected and told the whole truth of its node."""

    at: float
    node: str
    jobs: tuple[Registration, ...]
    memory: tuple[tuple[int, int], ...] = ()  # of each device, by minor number, in bytes
    trespass: str = "warn"  # what the site does with trespassers: warn, save or kill
    cancels: bool = True  # its agent knows what a cancel is


@dataclass(frozen=True)
class NodeDown:
    """The stream of a node's agent ended."""

    at: float
    node: str


@dataclass(frozen=True)
class Use:
    """A process on a device, as an agent sees it; *job_id* is empty where its job is not interleaved."""

    device: int
    pid: int
    job_id: str
    working: bool  # it runs something there now; else it has memory there


@dataclass(frozen=True)
class Used:
    """An agent has looked who uses its node's devices."""

    at: float
    node: str
    uses: tuple[Use, ...]


@dataclass(frozen=True)
class Registered:
    """A job started on a node."""

    at: float
    node: str
    job: Registration


@dataclass(frozen=True)
class PartOver:
    """A job is over on a node, its device state is gone there."""

    at: float
    node: str
    job_id: str
    attempt: str


@dataclass(frozen=True)
class JobOver:
    """Slurm says that a job is over everywhere since *ended*; nodes may still be cleaning up."""

    at: float
    job_id: str
    ended: float


@dataclass(frozen=True)
class Acquire:
    """A job wants the devices of a group, and of the groups in *also* with it, all or none.

    *call* stands for the caller who waits. While he waits he keeps the leases that the job holds now, unless
    he says that he is *independent* of them.
    """

    at: float
    job_id: str
    group: str
    phase: str
    call: CallId
    also: tuple[str, ...] = ()
    independent: bool = False
    name: str = ""  # that its client gave it, the same in all tries; empty: none
    silent: bool = False  # he hears of the grant alone, and not of his place


@dataclass(frozen=True)
class Cancel:
    """A caller is gone before it was answered: deadline, cancel, or a lost connection."""

    at: float
    call: CallId


@dataclass(frozen=True)
class Away:
    """A caller is away and expected back: his place, or the lease that crossed his leaving, is kept a while.

    Who was *cut* off is passed over meanwhile; who only calls again can be granted.
    """

    at: float
    call: CallId
    cut: bool


@dataclass(frozen=True)
class Yield:
    """A member gives its devices up; epoch 0 means whichever lease it holds.

    *call* names the acquire whose turn ends: if another was told of the same lease since, it goes on.
    *pause*: at a safe point, and its phase goes on with its next turn.
    """

    at: float
    job_id: str
    group: str
    epoch: int
    call: str = ""
    pause: bool = False


@dataclass(frozen=True)
class Abandon:
    """The client of the acquire *name* has given up, and no call of it is known any more."""

    at: float
    job_id: str
    name: str


@dataclass(frozen=True)
class HoldCheck:
    """A time that the core asked for has come: a lease may have lasted too long."""

    at: float
    job_id: str
    group: str
    epoch: int


@dataclass(frozen=True)
class AbsenceCheck:
    """A time that the core asked for has come: the processes of a lease's holder may be gone still."""

    at: float
    job_id: str
    group: str
    epoch: int


@dataclass(frozen=True)
class Revoke:
    """An operator takes a lease back: the job is saved and queued again behind the others."""

    at: float
    job_id: str
    group: str


@dataclass(frozen=True)
class Clear:
    """The fault of a member is to end: what it has on its nodes is discarded, unless *keep*."""

    at: float
    job_id: str
    group: str
    call: CallId
    keep: bool = False


@dataclass(frozen=True)
class CancelMoves:
    """An operator wants what is being done to the device state of a member stopped, and undone."""

    at: float
    job_id: str
    group: str


@dataclass(frozen=True)
class Weigh:
    """Slurm says what priority a job has; and its account and name, where its agent did not know them."""

    at: float
    job_id: str
    priority: int
    account: str = ""
    name: str = ""


@dataclass(frozen=True)
class Suspended:
    """Slurm has stopped the processes of a job, or let them go on."""

    at: float
    job_id: str
    suspended: bool


@dataclass(frozen=True)
class Components:
    """Slurm names all components of heterogeneous jobs that it has, each with the id of its whole job."""

    at: float
    of: Mapping[str, str]


@dataclass(frozen=True)
class Draining:
    """The processes of a job on *node* are being saved to disk, or they were not and go on."""

    at: float
    job_id: str
    node: str
    draining: bool


@dataclass(frozen=True)
class OperationDone:
    """An agent ended a snapshot or a restore; *context* is where the device state is now."""

    at: float
    node: str
    operation: str
    job_id: str
    ok: bool
    context: Context
    bytes: int
    seconds: float
    error: str


@dataclass(frozen=True)
class Wake:
    """A time that the core asked for has come: a back-off or a grace period is over."""

    at: float
    job_id: str
    group: str
    requested: float  # when the waiter asked: a later one is not meant


CallEvent = (
    Acquire | Cancel | Away | Abandon | Yield | Wake | HoldCheck | AbsenceCheck | Revoke | Clear | CancelMoves
)
NodeEvent = NodeUp | NodeDown | Used | Registered | PartOver | JobOver | OperationDone
JobEvent = Weigh | Suspended | Draining
Event = CallEvent | NodeEvent | JobEvent | Components
