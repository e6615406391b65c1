"""An orchestrator in your test's own process: jobs take turns over real gRPC, without agents and devices.

with testing.orchestrator() as turns:
    mine, other = turns.job("1"), turns.job("2")
    with mine.turn("train"):
        assert other.try_acquire() is None
    assert turns.history == [("1", "demo", "train")]
"""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass
from typing import Any, NamedTuple

import grpc

from slurm_interleave.client.connect import CALL_KEY
from slurm_interleave.client.core.errors import InterleaveError, JobFaulted, StaleLease
from slurm_interleave.client.interleaver import Interleaver
from slurm_interleave.client.testing_ranks import RanksHere, answered
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc

GROUP = "demo"
_CALLS = 64  # that may wait at the same time
# Else a server hangs up on a client that pings as ours do.
_OPTIONS = (("grpc.so_reuseport", 0), ("grpc.http2.min_ping_interval_without_data_ms", 5_000))


class Turn(NamedTuple):
    """A turn that was granted."""

    job: str
    group: str
    phase: str


@dataclass
class _Lease:
    job: str
    epoch: int
    call: str  # the acquire that was told of it last


@dataclass
class _Place:
    """A job in the queue, for all of *groups* at once, and the acquires that wait with it."""

    job: str
    groups: Sequence[str]
    phase: str
    calls: list[str]


class Turns(rpc.InterleaveServicer):
    """Groups of jobs, each with devices of its own: first come, first served. Safe for threads."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.history: list[Turn] = []  # in the order of the grants
        self._changed = threading.Condition()
        self._leases: dict[str, _Lease] = {}
        self._queue: list[_Place] = []
        self._faults: dict[str, str] = {}
        self._asked: dict[str, float] = {}  # by group: when its holder is to yield
        self._yielded: set[int] = set()
        self._epochs = itertools.count(1)
        self._made: list[Interleaver] = []

    def environ(self, job: str, group: str = GROUP) -> dict[str, str]:
        """Return the variables that make a process one of *job*."""
        return {
            "INTERLEAVE_GROUP": group,
            "INTERLEAVE_JOB_ID": job,
            "INTERLEAVE_NODE": "test",
            "INTERLEAVE_ORCHESTRATOR": self.address,
            "INTERLEAVE_TOKEN": f"token-of-{job}",
        }

    def job(self, job: str, group: str = GROUP) -> Interleaver:
        """Return an interleaver of *job*, which is closed at the end."""
        self._made.append(Interleaver.from_env(self.environ(job, group)))
        return self._made[-1]

    def holder(self, group: str = GROUP) -> str:
        """Return the job that holds the devices of *group*; empty: none."""
        with self._changed:
            return self._leases[group].job if group in self._leases else ""

    def waiting(self, group: str = GROUP) -> list[str]:
        """Return the jobs that wait for the devices of *group*, in order."""
        with self._changed:
            return [place.job for place in self._queue if group in place.groups]

    def until_waiting(self, *jobs: str, group: str = GROUP, within: float = 10.0) -> None:
        """Wait until *jobs* wait, in this order. Raises `TimeoutError` after *within* seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.waiting(group) == list(jobs), within):
                raise TimeoutError(f"for group {group} wait {self.waiting(group)}, and not {list(jobs)}")

    def ask_to_yield(self, by: float, group: str = GROUP) -> None:
        """Tell the holder of *group* to yield by this `time.time()`, as `[turns] max_hold_s` does."""
        with self._changed:
            self._asked[group] = by
            self._changed.notify_all()

    def revoke(self, group: str = GROUP) -> None:
        """Take the lease of *group* back: its holder's yield raises `StaleLease`."""
        with self._changed:
            self._leases.pop(group, None)
            self._advance()

    def fault(self, job: str, reason: str) -> None:
        """Let the device state of *job* be lost: its acquires raise `JobFaulted`."""
        with self._changed:
            self._faults[job] = reason
            self._queue = [place for place in self._queue if place.job != job]
            self._advance()

    def close(self) -> None:
        """Close the interleavers that were made here, and let nobody wait any more."""
        for made in self._made:
            with contextlib.suppress(InterleaveError):
                made.close()

    def Acquire(self, request: pb.AcquireRequest, context: Any) -> Iterator[pb.AcquireUpdate]:
        """Tell each new place, then the grant."""
        with answered(context):
            yield from self._updates(request, context, math.inf)

    def AcquireSoon(self, request: pb.AcquireRequest, context: Any) -> pb.AcquireUpdate:
        """Tell the grant, or nothing once the caller's patience is over; then he keeps his place."""
        with answered(context):
            updates = self._updates(request, context, request.patience_s)
            granted = [update for update in updates if update.HasField("granted")]
        return granted[0] if granted else pb.AcquireUpdate()

    def Yield(self, request: pb.YieldRequest, context: Any) -> pb.YieldReply:
        """End a lease, or an acquire that was given up."""
        if call := _call(context):
            self._abandon(call)
            return pb.YieldReply()
        with answered(context):
            return pb.YieldReply(pending_waiters=self._end(request))

    def Notices(self, request: pb.NoticesRequest, context: Any) -> Iterator[pb.HolderNotice]:
        """Tell a holder who waits."""
        context.add_callback(self._wake)
        told: tuple[bool, int, float] | None = None
        while context.is_active():
            with self._changed:
                holds = self.holder(request.group) == request.job_id
                by = self._asked.get(request.group, 0.0) if holds else 0.0
                now = (holds, len(self.waiting(request.group)), by)
                if now == told:
                    self._changed.wait()
                    continue
            if told is None or holds:
                yield pb.HolderNotice(waiting=now[1], by=by)
            told = now

    def _updates(
        self, request: pb.AcquireRequest, context: Any, patience_s: float
    ) -> Iterator[pb.AcquireUpdate]:
        job, groups, call, told = request.job_id, [request.group, *request.also], _call(context), -1
        until = time.monotonic() + patience_s
        context.add_callback(self._wake)
        with self._changed:
            self._enqueue(request, call)
        while context.is_active():
            with self._changed:
                granted, ahead = self._granted(job, groups, call), self._ahead(job, groups)
                left = until - time.monotonic()
                if granted is None and ahead == told and left > 0:
                    self._changed.wait(None if left == math.inf else left)
                    continue
            if granted is None and ahead == told:
                return
            yield granted or pb.AcquireUpdate(queued=pb.Queued(ahead=ahead))
            if granted is not None:
                return
            told = ahead

    def _enqueue(self, request: pb.AcquireRequest, call: str) -> None:
        job, groups = request.job_id, [request.group, *request.also]
        missing = [group for group in groups if group not in self._leases or self._leases[group].job != job]
        for place in self._queue:
            if (place.job, set(place.groups)) == (job, set(missing)):
                place.calls.append(call)
                return
        if missing:
            self._queue.append(_Place(job, missing, request.phase, [call]))
            self._advance()

    def _advance(self) -> None:
        """Grant to whom nobody holds up, and wake those who wait."""
        taken = set(self._leases)
        for place in list(self._queue):
            if taken.isdisjoint(place.groups):
                self._queue.remove(place)
                for group in place.groups:
                    self._leases[group] = _Lease(place.job, next(self._epochs), place.calls[-1])
                    self._asked.pop(group, None)
                    self.history.append(Turn(place.job, group, place.phase))
            taken.update(place.groups)
        self._changed.notify_all()

    def _granted(self, job: str, groups: Sequence[str], call: str) -> pb.AcquireUpdate | None:
        if job in self._faults:
            raise JobFaulted(f"job {job} is faulted: {self._faults[job]}")
        leases = [self._leases.get(group) for group in groups]
        held = [lease for lease in leases if lease is not None and lease.job == job]
        if len(held) < len(groups):
            return None
        for lease in held:
            lease.call = call
        first, *also = [
            pb.GroupLease(group=group, epoch=lease.epoch) for group, lease in zip(groups, held, strict=True)
        ]
        return pb.AcquireUpdate(granted=pb.Granted(epoch=first.epoch, also=also))

    def _ahead(self, job: str, groups: Sequence[str]) -> int:
        jobs = {self._leases[group].job for group in groups if group in self._leases}
        for place in self._queue:
            if place.job == job:
                break
            if not set(groups).isdisjoint(place.groups):
                jobs.add(place.job)
        return len(jobs - {job})

    def _abandon(self, call: str) -> None:
        with self._changed:
            for place in self._queue:
                place.calls = [other for other in place.calls if other != call]
            self._queue = [place for place in self._queue if place.calls]
            self._leases = {group: lease for group, lease in self._leases.items() if lease.call != call}
            self._advance()

    def _end(self, request: pb.YieldRequest) -> int:
        with self._changed:
            lease = self._leases.get(request.group)
            waiting = len(self.waiting(request.group))
            if lease is not None and lease.job == request.job_id and request.epoch in (0, lease.epoch):
                if request.call in ("", lease.call):
                    del self._leases[request.group]
                    self._yielded.add(lease.epoch)
                    self._advance()
            elif request.epoch and request.epoch not in self._yielded:
                raise StaleLease(f"job {request.job_id}: lease {request.epoch} has ended; acquire again")
            return waiting

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


def _call(context: Any) -> str:
    return str(dict(context.invocation_metadata()).get(CALL_KEY, ""))


@contextlib.contextmanager
def orchestrator() -> Iterator[Turns]:
    """Serve on a free port of loopback for the body of a `with`."""
    pool = futures.ThreadPoolExecutor(_CALLS, thread_name_prefix="interleave-testing")
    server = grpc.server(pool, options=_OPTIONS)
    turns = Turns(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
    rpc.add_InterleaveServicer_to_server(turns, server)
    rpc.add_RanksServicer_to_server(RanksHere(), server)
    server.start()
    try:
        yield turns
    finally:
        turns.close()
        server.stop(grace=None).wait()
        pool.shutdown()
