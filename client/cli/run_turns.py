"""The turns of a program that knows nothing of them, for `interleave run`.

While it holds, the node's agent tells for how long its devices have been idle. If somebody waits then, they
are yielded, and asked for again at once: nobody can see when a program whose state was saved wants its
devices, since its call waits in the driver as any other does. So it gets them back in its turn, whether it
wants them or not.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from slurm_interleave.client.ask import Stop, Stopped
from slurm_interleave.client.connect import Unreachable, domain_error, open_channel
from slurm_interleave.client.core.errors import InterleaveError, JobEnded, JobFaulted, StaleLease
from slurm_interleave.client.interleaver import Interleaver
from slurm_interleave.client.waiting import say
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc

PHASE = "run"
_AGAIN_S = 2.0


class Turns:
    """Holds the devices by a thread, but for times when they are idle and others wait, until `close`."""

    def __init__(self, mine: Interleaver, idle_s: float | None, lost: Callable[[], object]) -> None:
        """*idle_s*: yield after so many seconds without use (None: never).

        *lost* is called when the program cannot go on: its state on the devices is lost.
        """
        self._mine, self._idle_s, self._lost = mine, idle_s, lost
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._stop = Stop()
        self._watching: Any = None
        self._thread = threading.Thread(target=self._hold, name="interleave-run", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, though it may wait for the devices."""
        with self._lock:
            self._closed.set()
            self._stop.stop()
            if self._watching is not None:
                self._watching.cancel()
        self._thread.join()

    def _hold(self) -> None:
        while not self._closed.is_set() and self._one_turn():
            pass

    def _one_turn(self) -> bool:
        """Acquire if nothing is held, and yield when it is time to; False: there will not be another one."""
        try:
            if self._mine.lease is None:
                self._acquire()
            if self._idle_s is None or not self._until_idle(self._idle_s):
                return False
            with contextlib.suppress(StaleLease):  # the site has taken it already
                self._mine.yield_()
        except Stopped:
            return False
        except (JobFaulted, JobEnded) as error:
            say(f"the command cannot go on, and is killed: {error}")
            self._lost()
            return False
        except InterleaveError as error:
            say(f"{error}; trying again")
            self._closed.wait(_AGAIN_S)
        return True

    def _acquire(self) -> None:
        with self._lock:
            if self._closed.is_set():
                raise Stopped("the command has ended")
            self._stop = Stop()
        # No limit: a program that stands still has no other way to go on.
        self._mine.acquire(PHASE, math.inf, stop=self._stop)

    def _until_idle(self, idle_s: float) -> bool:
        """Return True once the devices are idle for so long and somebody waits; False: nobody sees that."""
        member = self._mine.member
        if member is None or not member.socket:
            return False
        with open_channel(member.socket) as channel:
            stub = rpc.JobAgentStub(channel)
            while not self._closed.is_set():
                try:
                    if self._idle(stub, idle_s):
                        return True
                except grpc.RpcError as error:
                    if self._final(error, member.socket):
                        return False
                self._closed.wait(_AGAIN_S)
        return False

    def _idle(self, stub: Any, idle_s: float) -> bool:
        with self._lock:
            if self._closed.is_set():
                return False
            self._watching = stub.WatchIdle(pb.WatchIdleRequest())
        with _ended(self._watching):
            for seen in self._watching:
                if seen.idle_s >= idle_s and self._mine.should_yield:
                    say(f"the devices were idle for {seen.idle_s:.1f} s: they go to those who wait")
                    return True
        return False

    def _final(self, error: grpc.RpcError, address: str) -> bool:
        if self._closed.is_set():
            return True
        domain = domain_error(error, address)
        if isinstance(domain, Unreachable):  # the agent is started again
            return False
        say(f"--idle-yield cannot work here, so the devices are held until the command ends: {domain}")
        return True


@contextlib.contextmanager
def _ended(call: Any) -> Iterator[None]:
    try:
        yield
    finally:
        call.cancel()
