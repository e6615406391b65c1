"""One job's talk with the orchestrator: an acquire that rides out an outage, a yield that is never lost."""

from __future__ import annotations

import atexit
import math
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import grpc

from slurm_interleave.client.connect import (
    CALL_KEY,
    Metadata,
    Unreachable,
    domain_error,
    open_channel,
    token_metadata,
)
from slurm_interleave.client.core.errors import InterleaveError, NotAuthenticated, NotRegistered
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc

_RETRY_S = (0.05, 0.1, 0.2, 0.5, 1.0)
# An agent that lost the orchestrator reports its jobs again within seconds of reaching it.
_REGISTRATION_GRACE_S = 30.0
_LAST_WORD_S = 60.0
_YIELD_TRY_S = 1.0
_ATTEND_S = 2.0
# Who waits longer than this is told his place in the queue.
_PATIENCE_S = 1.0


@dataclass(frozen=True)
class Lease:
    """The right to use the devices now. *epoch* rises with each grant; durations are in seconds."""

    epoch: int
    waited_s: float
    context_restored: bool
    switch_s: float


@dataclass(frozen=True)
class Member:
    """Which job of which group calls, and where to."""

    job_id: str
    group: str
    node: str
    address: str
    token: str
    unregistered: str = ""  # why it could not be registered
    socket: str = ""  # of the job on its node
    max_wait_s: float = math.inf  # for a grant, where the caller sets no limit of his own


def say(text: str) -> None:
    """Write a line to the job's log."""
    sys.stderr.write(f"[interleave] {text}\n")
    sys.stderr.flush()


class Session:
    """Calls for one member, made over one channel that opens at the first call. Safe for threads."""

    def __init__(self, member: Member, tell: Callable[[str], None] = say) -> None:
        self.member = member
        self._tell = tell
        self._channel: grpc.Channel | None = None
        self._lock = threading.Lock()
        self._delivery: threading.Thread | None = None
        self.heard_by = ""  # the name of the acquire that was told of the last lease
        self._attending = 0  # the process whose turns the node's agent knows of

    def acquire(self, phase: str, timeout_s: float | None) -> Lease:
        """Wait for the devices, through outages too.

        Raises `TimeoutError` after *timeout_s* seconds (None: as the job was submitted; infinite: never),
        `NotRegistered` if the orchestrator does not know the job, `JobFaulted` if its device state is lost.
        """
        timeout_s = self.member.max_wait_s if timeout_s is None else timeout_s
        timeout_s = None if timeout_s == math.inf else timeout_s
        began, name = time.monotonic(), uuid.uuid4().hex
        self._finish_delivery(timeout_s)
        told = _Telling(self.member, self._tell, began)
        self._attend()
        try:
            lease = self._until_granted(phase, timeout_s, began, told, name)
        except BaseException:
            self._abandon(name)
            raise
        self.heard_by = name
        return lease

    def _attend(self) -> None:
        """Tell the node's agent that this process takes turns: when it is gone, its lease need not last.

        An agent that does not answer is no reason to wait; one that is away is told at the next acquire.
        """
        if not self.member.socket or self._attending == os.getpid():
            return
        self._attending = os.getpid()
        try:
            with open_channel(self.member.socket) as channel:
                rpc.JobAgentStub(channel).Attend(pb.AttendRequest(pid=os.getpid()), timeout=_ATTEND_S)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                self._attending = 0

    def _until_granted(
        self, phase: str, timeout_s: float | None, began: float, told: _Telling, name: str
    ) -> Lease:
        attempt = 0
        while True:
            left = None if timeout_s is None else timeout_s - (time.monotonic() - began)
            if left is not None and left <= 0:
                raise self._late(timeout_s, None)
            try:
                return self._acquire_once(phase, left, told, name)
            except grpc.RpcError as error:
                self._may_try_again(error, timeout_s, told)
            pause = _RETRY_S[min(attempt, len(_RETRY_S) - 1)]
            time.sleep(pause if left is None else min(pause, left))
            attempt += 1

    def yield_lease(self, epoch: int) -> int:
        """End the lease and return how many wait. If the orchestrator is away, deliver it later, by a thread.

        Raises `StaleLease` if the lease had been taken back.
        """
        try:
            return self._yield_once(epoch)
        except grpc.RpcError as error:
            domain = domain_error(error, self.member.address)
            if not isinstance(domain, Unreachable) and error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                raise domain from None
        self._tell(
            f"the orchestrator at {self.member.address} cannot be reached; the yield is sent when it is back"
        )
        self._delivery = threading.Thread(
            target=self._deliver, args=(epoch,), name="interleave-yield", daemon=True
        )
        self._delivery.start()
        # The job may go on without this process: its yield must not be lost with it.
        atexit.register(self._delivery.join, _LAST_WORD_S)
        return 0

    def close(self) -> None:
        """Deliver what is on its way, for a minute at most, and close; a later call opens a new channel."""
        if self._delivery is not None:
            self._delivery.join(_LAST_WORD_S)
        with self._lock:
            if self._channel is not None:
                self._channel.close()
            self._channel = None

    def _acquire_once(self, phase: str, timeout_s: float | None, told: _Telling, name: str) -> Lease:
        request = pb.AcquireRequest(
            job_id=self.member.job_id, group=self.member.group, phase=phase, patience_s=_PATIENCE_S
        )
        began, stub, metadata = time.monotonic(), self._stub(), self._credentials(name)
        soon = stub.AcquireSoon(request, timeout=timeout_s, metadata=metadata)
        if soon.HasField("granted"):
            return _lease(soon.granted, phase, told)
        if timeout_s is not None:
            timeout_s -= time.monotonic() - began
        call = stub.Acquire(request, timeout=timeout_s, metadata=metadata)
        for update in call:
            if update.WhichOneof("update") == "queued":
                told.queued(update.queued)
                continue
            # A grant whose stream does not end well may have been given back: ask again.
            if call.code() is not grpc.StatusCode.OK:
                raise call
            return _lease(update.granted, phase, told)
        raise InterleaveError(
            f"the orchestrator at {self.member.address} ended the acquire without an answer"
        )

    def _may_try_again(self, error: grpc.RpcError, timeout_s: float | None, told: _Telling) -> None:
        """Return if the call may be made again; else raise what *error* means."""
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            raise self._late(timeout_s, error) from None
        domain = domain_error(error, self.member.address)
        if isinstance(domain, Unreachable):
            told.away(f"the orchestrator at {self.member.address} cannot be reached")
        elif not (isinstance(domain, (NotRegistered, NotAuthenticated)) and told.unknown()):
            raise domain from None

    def _abandon(self, name: str) -> None:
        """Say that nobody waits any more: a grant that crosses this is given back."""
        try:
            self._yield_once(0, name)
        except grpc.RpcError:
            thread = threading.Thread(
                target=self._deliver, args=(0, name), name="interleave-abandon", daemon=True
            )
            thread.start()

    def _yield_once(self, epoch: int, name: str = "") -> int:
        request = pb.YieldRequest(
            job_id=self.member.job_id, group=self.member.group, epoch=epoch, call=name or self.heard_by
        )
        reply = self._stub().Yield(request, timeout=_YIELD_TRY_S, metadata=self._credentials(name))
        return int(reply.pending_waiters)

    def _deliver(self, epoch: int, name: str = "") -> None:
        attempt = 0
        while True:
            time.sleep(_RETRY_S[min(attempt, len(_RETRY_S) - 1)])
            attempt += 1
            try:
                self._yield_once(epoch, name)
            except grpc.RpcError as error:
                # An error of the orchestrator's own says that there is no such lease any more.
                if type(domain_error(error, self.member.address)) not in (Unreachable, InterleaveError):
                    return
            else:
                return

    def _finish_delivery(self, timeout_s: float | None) -> None:
        delivery = self._delivery
        if delivery is not None:
            delivery.join(timeout_s)
            if delivery.is_alive():
                raise self._late(timeout_s, None)
            self._delivery = None

    def _late(self, timeout_s: float | None, error: grpc.RpcError | None) -> TimeoutError:
        detail = f" ({error.details()})" if error is not None else ""
        return TimeoutError(
            f"job {self.member.job_id}: the devices of group {self.member.group} were not granted "
            f"within {timeout_s} s{detail}"
        )

    def _stub(self) -> rpc.InterleaveStub:
        with self._lock:
            if self._channel is None:
                self._channel = open_channel(self.member.address)
            return rpc.InterleaveStub(self._channel)

    def _credentials(self, name: str = "") -> Metadata:
        named = ((CALL_KEY, name),) if name else ()
        return (*token_metadata(self.member.token), *named)


def _lease(granted: pb.Granted, phase: str, told: _Telling) -> Lease:
    told.granted(phase, granted)
    return Lease(granted.epoch, granted.waited_s, granted.context_restored, granted.switch_s)


class _Telling:
    """What the job's log says while it waits: each change once, an outage at most every 30 s."""

    def __init__(self, member: Member, tell: Callable[[str], None], began: float) -> None:
        self._member, self._tell, self._began = member, tell, began
        self._last: tuple[int, str] | None = None
        self._away_told = float("-inf")
        self._unknown_since: float | None = None
        self._waited = False

    def queued(self, update: pb.Queued) -> None:
        if (update.ahead, update.reason) != self._last:
            self._last, self._waited = (update.ahead, update.reason), True
            why = f"; {update.reason}" if update.reason else ""
            about = f", about {update.expected_s:.0f} s" if update.HasField("expected_s") else ""
            self._tell(
                f"waiting for the devices of group {self._member.group}: {update.ahead} ahead{about}{why}"
            )

    def unknown(self) -> bool:
        """Tell whether the orchestrator, which does not know the job, may still hear of it."""
        since = self._unknown_since = self._unknown_since or time.monotonic()
        self._say_away("the orchestrator does not know this job yet")
        return time.monotonic() - since < _REGISTRATION_GRACE_S

    def away(self, what: str) -> None:
        self._unknown_since = None
        self._say_away(what)

    def _say_away(self, what: str) -> None:
        now = time.monotonic()
        if now - self._away_told >= 30:
            self._away_told, self._waited = now, True
            self._tell(f"{what}; waiting, and trying again")

    def granted(self, phase: str, lease: pb.Granted) -> None:
        if self._waited:
            waited = time.monotonic() - self._began
            restored = ", device state restored" if lease.context_restored else ""
            named = f" for phase {phase}" if phase else ""
            self._tell(f"granted{named} after {waited:.2f} s{restored}")
