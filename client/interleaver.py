"""What a job adds to its script: acquire and yield around the phases that use accelerators."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from slurm_interleave.client.core.errors import BadArgument, InterleaveError, NotRegistered
from slurm_interleave.client.core.names import excerpt, parse_phase
from slurm_interleave.client.core.values import parse_seconds
from slurm_interleave.client.endpoints import parse_endpoints, register_endpoints
from slurm_interleave.client.registration import registered
from slurm_interleave.client.session import Lease, Member, Session, say

_OUTSIDE = Lease(epoch=0, waited_s=0.0, context_restored=False, switch_s=0.0)
_told_outside = threading.Event()


class Interleaver:
    """Takes turns with the other jobs of the group on the same devices.

    Outside an interleaved job each call does nothing, so the same script runs anywhere. One lease at a time:
    acquiring while holding keeps the lease, and one `yield_` ends it. Safe for threads.
    """

    def __init__(self, session: Session | None) -> None:
        self._session = session
        self._lease: Lease | None = None
        self._depth = 0
        self._by_turn = False  # the lease was taken by a turn, whose end yields it
        self._lock = threading.RLock()
        self._granted: list[Callable[[], None]] = []
        self._before_first: list[Callable[[], object]] = []

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> Interleaver:
        """Return the interleaver of the job that this process belongs to, as its environment says.

        Where INTERLEAVE_GROUP is set and neither Slurm nor `interleave register` has registered a job, this
        process is registered with its node's agent, as a job of its own or as part of INTERLEAVE_JOB.
        INTERLEAVE_MAX_WAIT is the timeout in seconds of each acquire that names none. Raises `BadArgument`.
        """
        group = environ.get("INTERLEAVE_GROUP", "")
        if not group or environ.get("INTERLEAVE_DISABLE", "") not in ("", "0"):
            return cls(None)
        unregistered = ""
        try:
            environ = registered(environ)
        except NotRegistered as error:  # told at the first acquire
            unregistered = str(error)
        member = Member(
            job_id=environ.get("INTERLEAVE_JOB_ID") or environ.get("SLURM_JOB_ID", ""),
            group=group,
            node=environ.get("INTERLEAVE_NODE") or environ.get("SLURMD_NODENAME", "this node"),
            address=environ.get("INTERLEAVE_ORCHESTRATOR", ""),
            token=environ.get("INTERLEAVE_TOKEN", ""),
            unregistered=unregistered,
            socket=environ.get("INTERLEAVE_SOCKET", ""),
            max_wait_s=_max_wait_s(environ.get("INTERLEAVE_MAX_WAIT", "")),
        )
        made = cls(Session(member))
        if endpoints := environ.get("INTERLEAVE_ENDPOINTS", ""):
            made.on_first_acquire(lambda: register_endpoints(*parse_endpoints(endpoints), environ=environ))
        return made

    @property
    def active(self) -> bool:
        """Whether this process is in an interleaved job."""
        return self._session is not None

    @property
    def lease(self) -> Lease | None:
        """The lease that is held now."""
        return self._lease

    def acquire(self, phase: str = "", timeout: float | None = None) -> Lease:
        """Wait until the job holds its devices with its state on them.

        *phase* is kept for the report. Raises `TimeoutError` after *timeout* seconds (None: as the job's
        --interleave-max-wait says, `math.inf`: never), `NotRegistered` if the node's agent did not register
        the job, `JobFaulted` if its device state is lost.
        """
        if self._session is None:
            _tell_outside_once()
            return _OUTSIDE
        with self._lock:
            if self._lease is None:
                _require_registration(self._session.member)
                while self._before_first:
                    self._before_first[0]()
                    del self._before_first[0]
                self._lease = self._session.acquire(parse_phase(phase), timeout)
                self._tell_granted()
            return self._lease

    def on_first_acquire(self, call: Callable[[], object]) -> None:
        """Have *call* called once, before the next acquire asks; if it raises, again before the one after."""
        self._before_first.append(call)

    def on_grant(self, call: Callable[[], None]) -> None:
        """Have *call* called at each grant, before `acquire` returns; if it raises, the lease is yielded."""
        self._granted.append(call)

    def yield_(self) -> None:
        """Give the devices up; returns when that is recorded. Does nothing if no lease is held.

        Raises `StaleLease` if the lease had been taken back in the meantime.
        """
        with self._lock:
            lease, self._lease = self._lease, None
            if lease is not None and self._session is not None:
                self._session.yield_lease(lease.epoch)

    @contextmanager
    def turn(self, phase: str = "", timeout: float | None = None) -> Iterator[Lease]:
        """Hold the devices for the body of a `with`, or as a decorator for each call of a function.

        A turn inside a turn, or after an `acquire`, changes nothing: who took the lease yields it. An
        exception of the body is never replaced by one of the yield.
        """
        with self._lock:
            held = self._lease is not None
            lease = self.acquire(phase, timeout)
            if not self._depth:
                self._by_turn = not held
            self._depth += 1
        try:
            yield lease
        except BaseException:
            self._leave(failing=True)
            raise
        self._leave(failing=False)

    def _tell_granted(self) -> None:
        try:
            for call in self._granted:
                call()
        except BaseException:
            self.yield_()
            raise

    def close(self) -> None:
        """Yield if a lease is held, and close the connection."""
        try:
            self.yield_()
        finally:
            if self._session is not None:
                self._session.close()

    def _leave(self, failing: bool) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth or not self._by_turn:
                return
            try:
                self.yield_()
            except InterleaveError as error:
                if not failing:
                    raise
                say(f"the yield failed too: {error}")


def _max_wait_s(text: str) -> float:
    if not text:
        return math.inf
    try:
        return parse_seconds(float(text), "INTERLEAVE_MAX_WAIT")
    except ValueError:
        raise BadArgument(f"INTERLEAVE_MAX_WAIT: {excerpt(text)} is not a number of seconds") from None


def _require_registration(member: Member) -> None:
    if member.address and member.token:
        return
    if member.unregistered:
        raise NotRegistered(f"this process cannot join group {member.group}: {member.unregistered}")
    raise NotRegistered(
        f"job {member.job_id} of group {member.group} is not registered on node {member.node}: the node's "
        "interleave-agent did not answer when the job started; ask the administrator to check it "
        "(systemctl status interleave-agent), then requeue the job"
    )


def _tell_outside_once() -> None:
    if not _told_outside.is_set():
        _told_outside.set()
        say("not in an interleaved job: acquire and yield do nothing")
