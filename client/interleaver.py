"""What a job adds to its script: acquire and yield around the phases that use accelerators."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from slurm_interleave.client.ask import Lease, NotFree, Stop
from slurm_interleave.client.core.errors import InterleaveError
from slurm_interleave.client.core.names import parse_group_name, parse_phase
from slurm_interleave.client.endpoints import parse_endpoints, register_endpoints
from slurm_interleave.client.forks import tell_in_children
from slurm_interleave.client.held import Held
from slurm_interleave.client.member import Member, member_of, require_registration
from slurm_interleave.client.notices import Notice, Notices, call_each
from slurm_interleave.client.session import Session
from slurm_interleave.client.waiting import Shown, say, say_outside

_OUTSIDE = Lease(epoch=0, waited_s=0.0, context_restored=False, switch_s=0.0)


class Interleaver:
    """Takes turns with the other jobs of the group on the same devices.

    Outside an interleaved job each call does nothing, so the same script runs anywhere. A group has one lease
    at a time: acquiring while holding keeps the lease, and one `yield_` ends it. Safe for threads. A copy in
    a process that was forked or spawned begins without a lease.
    """

    def __init__(self, session: Session | None) -> None:
        self._session = session
        self._on_grant: list[Callable[[], object]] = []
        self._on_first_acquire: list[Callable[[], object]] = []
        self._on_notice: list[Callable[[Notice], object]] = []
        self._begin()
        tell_in_children(self)

    def _begin(self) -> None:
        """Hold nothing, and know of no other thread."""
        self._held = Held()
        self._lock = threading.RLock()
        self._notices: dict[str, Notices] = {}
        if self._session is not None:
            self._session.begin()

    def forked(self) -> object:
        """In a child: the lease is the parent's, and so are the threads and connections."""
        parents = self._notices, dict(vars(self._session)) if self._session is not None else {}
        self._begin()
        return parents

    def __reduce__(self) -> tuple[object, ...]:
        """Be pickled, as for a process that is spawned, without lease and callbacks."""
        return Interleaver._of, (self.member,)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> Interleaver:
        """Return the interleaver of the job that this process belongs to, as its environment says.

        Where INTERLEAVE_GROUP is set and neither Slurm nor `interleave register` has registered a job, this
        process is registered with its node's agent, as a job of its own or as part of INTERLEAVE_JOB.
        INTERLEAVE_MAX_WAIT is the timeout in seconds of each acquire that names none. Raises `BadArgument`.
        """
        member = member_of(environ)
        made = cls._of(member)
        if member is not None and (endpoints := environ.get("INTERLEAVE_ENDPOINTS", "")):
            where = {"INTERLEAVE_SOCKET": member.socket, "INTERLEAVE_JOB_ID": member.job_id}
            made.on_first_acquire(lambda: register_endpoints(*parse_endpoints(endpoints), environ=where))
        return made

    @classmethod
    def _of(cls, member: Member | None) -> Interleaver:
        return cls(Session(member, waiting=Shown) if member is not None else None)

    @property
    def member(self) -> Member | None:
        """Which job of which group this is; None outside an interleaved job."""
        return self._session.member if self._session is not None else None

    @property
    def active(self) -> bool:
        """Whether this process is in an interleaved job."""
        return self._session is not None

    @property
    def lease(self) -> Lease | None:
        """The lease that is held now; of several, that of the job's own group, or the first."""
        return self._held.lease(self.member.group) if self.member is not None else None

    @property
    def should_yield(self) -> bool:
        """Whether the devices are held and somebody waits for them."""
        return bool(self.notices())

    def notices(self) -> list[Notice]:
        """Return what there is to know of the leases that are held; empty: nobody waits."""
        groups = self._held.groups()
        self._listen(groups)
        found = [notices.now() for group, notices in list(self._notices.items()) if group in groups]
        return [notice for notice in found if notice is not None]

    def acquire(
        self,
        phase: str = "",
        timeout: float | None = None,
        groups: Sequence[str] | None = None,
        *,
        stop: Stop | None = None,
    ) -> Lease:
        """Wait until the job holds its devices with its state on them.

        *phase* is kept for the report. *groups*: all of these at once, or none (None: the job's own). Raises
        `TimeoutError` after *timeout* seconds (None: as the job's --interleave-max-wait says, `math.inf`:
        never), `NotRegistered` if no agent registered the job there, `JobFaulted` if its state is lost,
        `Deadlock` if who holds one of *groups* waits for it, `Stopped` after `stop.stop()`.
        """
        return self._acquire(phase, timeout, groups, stop=stop)

    def try_acquire(
        self, phase: str = "", timeout: float | None = None, groups: Sequence[str] | None = None
    ) -> Lease | None:
        """Acquire if nobody holds the devices or comes first; else return None, after a tenth of a second.

        Its own state may have to be restored, which takes its time; None also if *timeout* seconds are over
        then. Raises `Unreachable` if the orchestrator cannot be asked.
        """
        try:
            return self._acquire(phase, timeout, groups, patient=False)
        except (NotFree, TimeoutError):
            return None

    def _acquire(
        self,
        phase: str,
        timeout: float | None,
        groups: Sequence[str] | None,
        *,
        patient: bool = True,
        stop: Stop | None = None,
    ) -> Lease:
        session = self._session
        if session is None:
            say_outside()
            return _OUTSIDE
        wanted = self._groups(groups)
        with self._lock:
            missing = [group for group in wanted if group not in self._held]
            if missing:
                require_registration(session.member)
                while self._on_first_acquire:
                    self._on_first_acquire[0]()
                    del self._on_first_acquire[0]
                self._hold(session.acquire(parse_phase(phase), timeout, missing, patient=patient, stop=stop))
            return self._held[wanted[0]]

    def _groups(self, groups: Sequence[str] | None) -> list[str]:
        """Return the groups that are meant. Raises `BadName`."""
        own = [self.member.group] if self.member is not None else []
        return list(dict.fromkeys(map(parse_group_name, groups))) if groups else own

    def _hold(self, lease: Lease) -> None:
        """Take a new lease, and tell those who wait for it; if one fails, give it up."""
        self._held.take(lease)
        groups = [lease.group, *lease.also]
        try:
            for call in self._on_grant:
                call()
        except BaseException:
            self._yield_quietly(groups)
            raise
        if self._on_notice:
            self._listen(groups)
        for notice in self._tell_notices(groups):
            call_each(self._on_notice, notice)

    def on_first_acquire(self, call: Callable[[], object]) -> None:
        """Have *call* called once, before the next acquire asks; if it raises, again before the one after."""
        self._on_first_acquire.append(call)

    def on_grant(self, call: Callable[[], object]) -> None:
        """Have *call* called at each grant, before `acquire` returns; if it raises, the lease is yielded."""
        self._on_grant.append(call)

    def on_notice(self, call: Callable[[Notice], object]) -> None:
        """Have *call* called, by a thread, when somebody waits for what is held or it is to be yielded."""
        self._on_notice.append(call)
        self._listen(self._held.groups())

    def _listen(self, groups: Sequence[str]) -> None:
        """Begin to follow what is told of *groups*."""
        if self._session is None:
            return
        with self._held.lock:
            for group in groups:
                if group not in self._notices:
                    held = group in self._held
                    self._notices[group] = Notices(self._session, group, self._on_notice, held=held)

    def _tell_notices(self, groups: Sequence[str]) -> list[Notice]:
        """Tell those who follow whether *groups* are held; return what they have been told already."""
        with self._held.lock:
            following = [self._notices[group] for group in groups if group in self._notices]
            told = [each.held(held=each.group in self._held) for each in following]
        return [notice for notice in told if notice is not None]

    def yield_(self, groups: Sequence[str] | None = None) -> None:
        """Give the devices up; returns when that is recorded. Does nothing if no lease is held.

        *groups*: of these alone (None: all that are held). Raises `StaleLease` if a lease had been taken back
        in the meantime.
        """
        self._yield(groups)

    def _yield(self, groups: Sequence[str] | None = None, *, pause: bool = False) -> None:
        with self._lock, contextlib.ExitStack() as each, self._held.lock:
            leases = self._held.drop(self._groups(groups) if groups else None)
            for group, lease in leases.items():
                # One that fails keeps no other from being ended.
                each.callback(self._yield_one, group, lease, pause)
            for group in self._notices.keys() & leases.keys():
                self._notices[group].held(held=False)

    def _yield_one(self, group: str, lease: Lease, pause: bool) -> None:
        if self._session is not None:
            self._session.yield_lease(lease.epoch, group, lease.call, pause=pause)

    def _yield_quietly(self, groups: Sequence[str]) -> None:
        """Yield after another error, which is not to be replaced by one of the yield."""
        try:
            self.yield_(groups)
        except InterleaveError as error:
            say(f"the yield failed too: {error}")

    def yield_if_wanted(self, timeout: float | None = None) -> bool:
        """At a safe point of a long phase: give way to those who wait, come back, and return True.

        Returns False at once if nobody waits. *timeout* as in `acquire`; the phase's name stays.
        """
        with self._lock:
            groups, lease = self._held.groups(), self.lease
            if lease is None or not self.should_yield:
                return False
            self._yield(pause=True)
            self.acquire(lease.phase, timeout, groups)
            return True

    @contextlib.contextmanager
    def turn(
        self, phase: str = "", timeout: float | None = None, groups: Sequence[str] | None = None
    ) -> Iterator[Lease]:
        """Hold the devices for the body of a `with`, or as a decorator for each call of a function.

        A turn inside a turn, or after an `acquire`, changes nothing: who took the lease yields it. An
        exception of the body is never replaced by one of the yield.
        """
        lease = self.enter(phase, timeout, groups)
        try:
            yield lease
        except BaseException:
            self.leave(groups, failing=True)
            raise
        self.leave(groups)

    def enter(
        self,
        phase: str = "",
        timeout: float | None = None,
        groups: Sequence[str] | None = None,
        *,
        stop: Stop | None = None,
    ) -> Lease:
        """Begin a turn, for frameworks that have no `with` around it; each is to be left once."""
        with self._lock:
            before = self._held.groups()
            lease = self._acquire(phase, timeout, groups, stop=stop)
            self._held.enter(self._groups(groups), before)
            return lease

    def leave(self, groups: Sequence[str] | None = None, *, failing: bool = False) -> None:
        """End a turn. *failing*: by an exception, which the yield must not replace by one of its own."""
        with self._lock:
            over = self._held.leave(self._groups(groups))
            if over and failing:
                self._yield_quietly(over)
            elif over:
                self.yield_(over)

    def close(self) -> None:
        """Yield if a lease is held, and close the connection."""
        try:
            self.yield_()
        finally:
            with self._held.lock:
                notices, self._notices = self._notices, {}
            for following in notices.values():
                following.close()
            if self._session is not None:
                self._session.close()
