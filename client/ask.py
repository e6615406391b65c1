"""One acquire, in all its tries, and how another thread stops it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any

import grpc

from slurm_interleave.client.core.errors import InterleaveError
from slurm_interleave.client.waiting import Waiting
from slurm_interleave.client.wire import interleave_v1_pb2 as pb


@dataclass(frozen=True)
class Lease:
    """The right to use the devices now. *epoch* rises with each grant; durations are in seconds."""

    epoch: int
    waited_s: float
    context_restored: bool
    switch_s: float
    group: str = ""
    phase: str = ""
    also: Mapping[str, int] = field(
        default_factory=dict
    )  # epochs of other groups that were asked for with it
    call: str = field(default="", repr=False)  # the acquire that was told of it


class NotFree(InterleaveError):
    """Somebody else comes first, and the caller would not wait for him."""


class Stopped(InterleaveError):
    """Another thread has stopped the acquire."""


class Stop:
    """By which another thread stops an acquire. Each is for one acquire."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._call: Any = None
        self._wanted = self._granted = False

    def stop(self) -> bool:
        """Stop the acquire; return False if it was granted before."""
        with self._lock:
            self._wanted = True
            if self._call is not None:
                self._call.cancel()
            return not self._granted

    def watch(self, call: Any) -> Any:
        """Return *call*, to be cancelled if the acquire is stopped."""
        with self._lock:
            self._call = call
            if self._wanted:
                call.cancel()
        return call

    def check(self, *, granted: bool = False) -> None:
        """Raise `Stopped` if it is; else it cannot be stopped any more once it is *granted*."""
        with self._lock:
            if self._wanted:
                raise Stopped("the acquire was given up")
            self._granted = granted


def begun(call: Callable[[], Any]) -> Any:
    """Return the stream that *call* begins. A Ctrl-C comes before or after that, never within.

    gRPC would count on a call that nobody ends, and a process that has one hangs at its exit.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    made: futures.Future[Any] = futures.Future()

    def begin() -> None:
        try:
            made.set_result(call())
        except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
            made.set_exception(error)

    threading.Thread(target=begin, name="interleave-begin", daemon=True).start()
    return made.result()


@dataclass(frozen=True)
class Ask:
    """One acquire, in all its tries."""

    groups: Sequence[str]
    phase: str
    name: str
    told: Waiting
    patient: bool
    stop: Stop | None

    def check(self, *, granted: bool = False) -> None:
        """Raise `Stopped` if it is."""
        if self.stop is not None:
            self.stop.check(granted=granted)

    def watch(self, call: Any) -> Any:
        """Return *call*, to be cancelled if the acquire is stopped."""
        return call if self.stop is None else self.stop.watch(call)

    def answer(self, method: Any, request: pb.AcquireRequest, **call: Any) -> pb.AcquireUpdate:
        """Return the answer of a call in one message."""
        if self.stop is None:
            return method(request, **call)  # type: ignore[no-any-return]
        try:
            return self.stop.watch(method.future(request, **call)).result()  # type: ignore[no-any-return]
        except grpc.FutureCancelledError:
            self.stop.check()
            raise

    def queued(self, place: pb.Queued) -> None:
        """Tell the place in the queue; raise `NotFree` if that is not wanted."""
        if not self.patient and place.ahead:
            raise NotFree(f"the devices of group {', '.join(self.groups)} are not free: {place.ahead} ahead")
        self.told.queued(place)

    def lease(self, granted: pb.Granted) -> Lease:
        """Return what was granted."""
        self.told.granted(self.phase, granted)
        return Lease(
            granted.epoch,
            granted.waited_s,
            granted.context_restored,
            granted.switch_s,
            group=self.groups[0],
            phase=self.phase,
            also={other.group: other.epoch for other in granted.also},
            call=self.name,
        )
