"""One job's talk with the orchestrator: an acquire that rides out an outage, a yield that is never lost."""

from __future__ import annotations

import atexit
import math
import os
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import grpc

from slurm_interleave.client.ask import Ask, Lease, Stop, begun
from slurm_interleave.client.connect import (
    CALL_KEY,
    Metadata,
    Unreachable,
    domain_error,
    open_channel,
    retry_s,
    token_metadata,
)
from slurm_interleave.client.core import tracing
from slurm_interleave.client.core.errors import (
    InterleaveError,
    NotAuthenticated,
    NotRegistered,
    UnknownGroup,
)
from slurm_interleave.client.member import Member
from slurm_interleave.client.waiting import Waiting, say
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc

_LAST_WORD_S = 60.0
_YIELD_TRY_S = 1.0
# Another node of the job, with another of its groups, may be registered a moment later.
_MAY_COME = (NotRegistered, NotAuthenticated, UnknownGroup)
_ATTEND_S = 2.0
# Who waits longer than this is told his place in the queue.
_PATIENCE_S = 1.0


class Session:
    """Calls for one member, made over one channel that opens at the first call. Safe for threads."""

    def __init__(
        self, member: Member, tell: Callable[[str], None] = say, waiting: type[Waiting] = Waiting
    ) -> None:
        self.member = member
        self._tell = tell
        self._waiting = waiting
        self.begin()

    def begin(self) -> None:
        """Be as new, in a process that was forked: threads and connections are its parent's."""
        self._channel: grpc.Channel | None = None
        self._lock = threading.Lock()
        self._deliveries: list[threading.Thread] = []
        self.heard_by = ""  # the name of the acquire that was told of the last lease
        self._attending = 0  # the process whose turns the node's agent knows of

    def acquire(
        self,
        phase: str,
        timeout_s: float | None,
        groups: Sequence[str] = (),
        *,
        patient: bool = True,
        stop: Stop | None = None,
    ) -> Lease:
        """Wait for the devices of *groups* at once (none: of the member's), through outages too.

        Raises `TimeoutError` after *timeout_s* seconds (None: as the job was submitted; infinite: never),
        `NotRegistered` if the orchestrator does not know the job in the group, `JobFaulted` if its device
        state is lost, `NotFree` or `Unreachable` if it is not *patient*, `Stopped` if *stop* says so.
        """
        timeout_s = self.member.max_wait_s if timeout_s is None else timeout_s
        timeout_s = None if timeout_s == math.inf else timeout_s
        began, name = time.monotonic(), uuid.uuid4().hex
        self._finish_delivery(timeout_s)
        groups = list(groups) or [self.member.group]
        told = self._waiting(", ".join(groups), self._tell, time.monotonic)
        self._attend()
        try:
            ask = Ask(groups, phase, name, told, patient, stop)
            job_id = self.member.job_id
            with tracing.span("interleave.acquire", job=job_id, group=",".join(groups), phase=phase):
                lease = self._until_granted(ask, timeout_s, began)
            ask.check(granted=True)
        except BaseException:
            self._abandon(groups[0], name)
            raise
        finally:
            told.over()
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

    def _until_granted(self, ask: Ask, timeout_s: float | None, began: float) -> Lease:
        attempt = 0
        while True:
            ask.check()
            left = None if timeout_s is None else timeout_s - (time.monotonic() - began)
            if left is not None and left <= 0:
                raise self._late(timeout_s, None)
            try:
                return self._acquire_once(ask, left)
            except grpc.RpcError as error:
                ask.check()
                self._may_try_again(error, timeout_s, ask)
            pause = retry_s(attempt)
            time.sleep(pause if left is None else min(pause, left))
            attempt += 1

    def yield_lease(self, epoch: int, group: str = "", call: str = "", *, pause: bool = False) -> int:
        """End the lease and return how many wait. If the orchestrator is away, deliver it later, by a thread.

        Without *group* and *call*: of the member's, as the last acquire was told of it. *pause*: the phase
        goes on with the next one; what is delivered later says nothing of that.

        Raises `StaleLease` if the lease had been taken back.
        """
        try:
            return self._yield_once(epoch, group, call=call, pause=pause)
        except grpc.RpcError as error:
            domain = domain_error(error, self.member.address)
            if not isinstance(domain, Unreachable) and error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                raise domain from None
        self._tell(
            f"the orchestrator at {self.member.address} cannot be reached; the yield is sent when it is back"
        )
        delivery = threading.Thread(
            target=self._deliver, args=(epoch, group, "", call), name="interleave-yield", daemon=True
        )
        self._deliveries.append(delivery)
        delivery.start()
        # The job may go on without this process: its yield must not be lost with it.
        atexit.register(delivery.join, _LAST_WORD_S)
        return 0

    def notices(self, group: str) -> Any:
        """Return the stream of what a holder of *group* should know."""
        request = pb.NoticesRequest(job_id=self.member.job_id, group=group)
        return self._stub().Notices(request, metadata=self._credentials())

    def close(self) -> None:
        """Deliver what is on its way, for a minute at most, and close; a later call opens a new channel."""
        for delivery in self._deliveries:
            delivery.join(_LAST_WORD_S)
        with self._lock:
            if self._channel is not None:
                self._channel.close()
            self._channel = None

    def _acquire_once(self, ask: Ask, timeout_s: float | None) -> Lease:
        group, *also = ask.groups
        request = pb.AcquireRequest(
            job_id=self.member.job_id, group=group, phase=ask.phase, also=also, patience_s=_PATIENCE_S
        )
        began, stub, metadata = time.monotonic(), self._stub(), self._credentials(ask.name)
        if ask.patient:
            soon = ask.answer(stub.AcquireSoon, request, timeout=timeout_s, metadata=metadata)
            if soon.HasField("granted"):
                return ask.lease(soon.granted)
            if timeout_s is not None:
                timeout_s -= time.monotonic() - began
        call = ask.watch(begun(lambda: stub.Acquire(request, timeout=timeout_s, metadata=metadata)))
        for update in call:
            if update.WhichOneof("update") == "queued":
                ask.queued(update.queued)
                continue
            # A grant whose stream does not end well may have been given back: ask again.
            if call.code() is not grpc.StatusCode.OK:
                raise call
            return ask.lease(update.granted)
        raise InterleaveError(
            f"the orchestrator at {self.member.address} ended the acquire without an answer"
        )

    def _may_try_again(self, error: grpc.RpcError, timeout_s: float | None, ask: Ask) -> None:
        """Return if the call may be made again; else raise what *error* means."""
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            raise self._late(timeout_s, error) from None
        domain = domain_error(error, self.member.address)
        if isinstance(domain, Unreachable) and ask.patient:
            ask.told.away(f"the orchestrator at {self.member.address} cannot be reached")
        elif not (isinstance(domain, _MAY_COME) and ask.told.unknown()):
            raise domain from None

    def _abandon(self, group: str, name: str) -> None:
        """Say that nobody waits any more: a grant that crosses this is given back."""
        try:
            self._yield_once(0, group, name)
        except grpc.RpcError:
            thread = threading.Thread(
                target=self._deliver, args=(0, group, name), name="interleave-abandon", daemon=True
            )
            thread.start()

    def _yield_once(
        self, epoch: int, group: str = "", name: str = "", call: str = "", *, pause: bool = False
    ) -> int:
        request = pb.YieldRequest(
            job_id=self.member.job_id,
            group=group or self.member.group,
            epoch=epoch,
            call=name or call or self.heard_by,
            pause=pause,
        )
        reply = self._stub().Yield(request, timeout=_YIELD_TRY_S, metadata=self._credentials(name))
        return int(reply.pending_waiters)

    def _deliver(self, epoch: int, group: str, name: str = "", call: str = "") -> None:
        attempt = 0
        while True:
            time.sleep(retry_s(attempt))
            attempt += 1
            try:
                self._yield_once(epoch, group, name, call)
            except grpc.RpcError as error:
                # An error of the orchestrator's own says that there is no such lease any more.
                if type(domain_error(error, self.member.address)) not in (Unreachable, InterleaveError):
                    return
            else:
                return

    def _finish_delivery(self, timeout_s: float | None) -> None:
        while self._deliveries:
            self._deliveries[0].join(timeout_s)
            if self._deliveries[0].is_alive():
                raise self._late(timeout_s, None)
            del self._deliveries[0]

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
        return (*token_metadata(self.member.token), *named, *tracing.metadata())
