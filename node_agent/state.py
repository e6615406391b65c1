"""What the agent must remember: one JSON file, replaced as a whole, and a journal of what moved since.

Both outlive the agent (kill -9 included), and are void after a reboot, when no job of before lives. So
nothing is synced: a host that loses its page cache has lost the jobs too. The journal is there because a move
is on the path of a handover, where one short write costs a tenth of a new file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.client.core.states import Attendance, Context
from slurm_interleave.client.sim.processes import Process
from slurm_interleave.node_agent.contexts import JobContext
from slurm_interleave.node_agent.endpoints import Endpoints
from slurm_interleave.node_agent.job_processes import Owner
from slurm_interleave.node_agent.state_file import StateFile

log = logging.getLogger(__name__)
T = TypeVar("T")
_JOURNAL_LINES = 10_000
_TODO = "make room there, or make it writable; it is written by itself then"


@dataclass(frozen=True)
class Reservation:
    """Which devices a job that is about to start gets on this node."""

    job: str
    group: str
    role: str
    devices: tuple[int, ...]
    lane: str = ""
    nodes: tuple[str, ...] = ()
    attempt: str = ""  # that has started with it; empty: none


@dataclass(frozen=True)
class Request:
    """What the prolog says of a job, with the reservation filled in."""

    job: str
    group: str
    role: str
    devices: tuple[int, ...]
    uid: int
    gid: int
    user: str = ""
    account: str = ""
    partition: str = ""
    nodes: tuple[str, ...] = ()
    pid: int = 0  # of the process that a job without Slurm ends with; 0: none
    started: int = 0  # when that process started, as processes.Process has it
    priority: int = 0  # for policy "priority", where there is no Slurm
    restarts: int | None = None  # how often Slurm had put the job back into its queue; None: not said
    max_wait_s: int = 0  # for a turn, where the job says nothing else; 0: without limit
    backend: str = ""  # who is to move its state, as in app_channel+sim; empty: whoever the job registers
    profile: str = ""  # what is learned of it goes by this name; empty: by its account, name and devices
    max_slowdown: int | None = None  # percent that it may become slower by sharing; None: as the site says

    def is_like(self, other: Request) -> bool:
        """Tell whether both say the same; a step of a job does not always know its restarts."""
        if None in (self.restarts, other.restarts):
            return replace(self, restarts=None) == replace(other, restarts=None)
        return self == other


@dataclass
class Job:
    """One attempt of a job on this node."""

    request: Request
    attempt: str
    token: str
    _: KW_ONLY
    began: float = 0.0  # seconds since the Unix epoch; 0: an earlier release did not say
    context: JobContext = field(default_factory=JobContext)
    ended: bool = False  # its end was asked for, and is to be carried out
    had_processes: bool = False
    saving: bool = False  # a drain saves its processes, or has saved them, by this agent or the one before
    resumes: bool = False  # its processes were saved by a drain, and it may bring them back
    resumed_token: str = ""  # that processes know which were saved in an earlier run; empty: there are none
    clients: tuple[Process, ...] = ()  # that take turns for it
    attendance: Attendance = Attendance.UNKNOWN
    copies: dict[str, int] = field(default_factory=dict)  # bytes of its named copies of ranges
    endpoints: Endpoints | None = None  # servers that hold its device state

    @property
    def job_id(self) -> str:
        """The job's id in Slurm."""
        return self.request.job


class State:
    """Jobs and reservations, in memory and on disk."""

    def __init__(self, directory: Path, spare: Path | None = None) -> None:
        """Read what was kept in this boot in *directory*, or in the file *spare* where that took nothing.

        Raises `ConfigError` if *directory* cannot be used.
        """
        self.jobs: dict[str, Job] = {}
        self.reservations: dict[str, Reservation] = {}
        self._file = StateFile(directory, spare)
        self._unwritten = False  # what is in memory is newer than what is in *directory*
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._read()
        except OSError as error:
            raise ConfigError(f"[agent] state_dir = {directory}: cannot be used: {error}") from error

    def owners(self) -> dict[str, Owner]:
        """Return how the processes of each job are known that has not ended."""
        requests = [job.request for job in self.jobs.values() if not job.ended]
        return {request.job: Owner(request.uid, request.pid) for request in requests}

    def save_context(self, job: Job) -> None:
        """Write where the device state of *job* is; see `save` for a disk that takes nothing."""
        if self._unwritten:
            self.save()
            return
        try:
            self._file.append({"job": job.job_id, "attempt": job.attempt, "context": vars(job.context)})
        except OSError:
            self.save()
            return
        if self._file.lines >= _JOURNAL_LINES:
            self.save()

    def save_moved(self, job: Job, copy: str, size: int) -> None:
        """The same after a move that made a copy of *size* bytes with the name *copy*, or none."""
        if copy:
            job.copies[copy] = size
            self.save()
        else:
            self.save_context(job)

    def save(self) -> None:
        """Write all of it, at once or not at all.

        A disk that takes nothing stops no job: it is logged once, all is kept in the second place, and the
        next save tries again.
        """
        stored = {"jobs": list(self.jobs.values()), "reservations": list(self.reservations.values())}
        kept: Path | str = self._file.spare or ""
        try:
            refused = self._file.write(stored)
        except OSError as error:
            refused, kept = error, ""
        if refused is not None and not self._unwritten:
            path = self._file.path
            log.error(
                "state.unwritten",
                extra={"path": path, "reason": str(refused), "kept": kept or "nowhere", "todo": _TODO},
            )
        elif refused is None and self._unwritten:
            log.info("state.written", extra={"path": self._file.path})
        self._unwritten = refused is not None

    def catch_up(self) -> None:
        """Write what a disk did not take, if it takes it now."""
        if self._unwritten:
            self.save()

    def _read(self) -> None:
        stored = self._file.read()
        try:
            self.jobs = {job.job_id: job for job in self._readable(_job, stored.get("jobs", ()))}
            reservations = self._readable(_reservation, stored.get("reservations", ()))
            self.reservations = {one.job: one for one in reservations}
        except TypeError as error:
            self._file.unreadable(self._file.path, error)
        self._read_added()

    def _readable(self, read: Callable[[dict[str, Any]], T], stored: Iterable[dict[str, Any]]) -> Iterator[T]:
        """Yield what can be read: an entry that cannot, of whatever release, costs no other."""
        for entry in stored:
            one = self._one(read, entry)
            if one is not None:
                yield one

    def _one(self, read: Callable[[dict[str, Any]], T], entry: dict[str, Any]) -> T | None:
        try:
            return read(entry)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._file.unreadable(self._file.path, error)
            return None

    def _read_added(self) -> None:
        """Take what moved since the file was written, then begin a new series."""
        if not self._file.has_added:
            return
        for entry in self._file.added():
            job = self.jobs.get(entry.get("job", ""))
            if job is not None and entry.get("attempt") == job.attempt:
                job.context = self._one(read_context, entry.get("context", {})) or job.context
        self.save()


def _job(stored: dict[str, Any]) -> Job:
    raw = _known(Job, stored)
    request = Request(**_known(Request, raw.pop("request")))
    context = read_context(raw.pop("context", {}))
    clients = tuple(Process(*client) for client in raw.pop("clients", ()))
    attendance = Attendance(raw.pop("attendance", ""))
    endpoints = raw.pop("endpoints", None)
    return Job(
        **raw,
        clients=clients,
        attendance=attendance,
        request=replace(request, devices=tuple(request.devices), nodes=tuple(request.nodes)),
        context=context,
        endpoints=Endpoints(**{**endpoints, "urls": tuple(endpoints["urls"])}) if endpoints else None,
    )


def read_context(stored: dict[str, Any]) -> JobContext:
    """Return a context as it was written."""
    context = JobContext(**_known(JobContext, stored))
    try:
        return replace(context, state=Context(context.state))
    except ValueError:  # a word of a later release
        return replace(context, state=Context.UNKNOWN)


def _known(kind: type[Any], stored: dict[str, Any]) -> dict[str, Any]:
    """Return what this release knows of *stored*, which an earlier or later one may have written."""
    names = {one.name for one in fields(kind)}
    return {name: value for name, value in stored.items() if name in names}


def _reservation(stored: dict[str, Any]) -> Reservation:
    reservation = Reservation(**_known(Reservation, stored))
    return replace(reservation, devices=tuple(reservation.devices), nodes=tuple(reservation.nodes))
