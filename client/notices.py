"""What a holder should know: that others wait, and by when it is to yield."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from slurm_interleave.client.session import Session
from slurm_interleave.client.waiting import say
from slurm_interleave.client.wire import interleave_v1_pb2 as pb

_AGAIN_S = (0.1, 0.5, 2.0)
# For the first answer, so that who asks whether he should yield is not told no before anybody could say yes.
_FIRST_S = 1.0


@dataclass(frozen=True)
class Notice:
    """So many *waiting* jobs want the devices of *group*, and *by* then (as time.time(); 0.0: no limit).

    After *by* the site may take the devices back.
    """

    group: str
    waiting: int
    by: float = 0.0


class Notices:
    """Follows what is told of one group, by a thread, until `close`."""

    def __init__(
        self, session: Session, group: str, calls: Sequence[Callable[[Notice], object]], *, held: bool
    ) -> None:
        """*calls* are called by the thread, with what is told while the devices are *held*."""
        self.group = group
        self._session, self._calls = session, calls
        self._lock = threading.Lock()
        self._first = threading.Event()
        self._closed = threading.Event()
        self._call: Any = None
        self._held = held
        self._notice: Notice | None = None
        self._thread = threading.Thread(target=self._follow, name="interleave-notices", daemon=True)
        self._thread.start()

    def held(self, *, held: bool) -> Notice | None:
        """From now on the devices are held, or not; return what was told of that before it was known here."""
        with self._lock:
            known, self._held = self._held, held
            if not held:
                self._notice = None
            return self._notice if not known else None

    def now(self) -> Notice | None:
        """Return what was told of the lease that is held; None: nobody waits."""
        self._first.wait(_FIRST_S)
        return self._notice if self._held else None

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        if self._call is not None:
            self._call.cancel()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _follow(self) -> None:
        failures = 0
        while not self._closed.is_set():
            try:
                self._call = self._session.notices(self.group)
                if self._closed.is_set():
                    self._call.cancel()
                for told in self._call:
                    failures = 0
                    self._take(told)
                    self._first.set()
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:  # an orchestrator of another release
                    return
            finally:
                self._first.set()
            self._closed.wait(_AGAIN_S[min(failures, len(_AGAIN_S) - 1)])
            failures += 1

    def _take(self, told: pb.HolderNotice) -> None:
        """Take a notice, which a grant may have come before that is not known here yet."""
        if not told.waiting:
            return
        notice = Notice(self.group, told.waiting, told.by)
        with self._lock:
            self._notice, held = notice, self._held
        if held:
            call_each(self._calls, notice)


def call_each(calls: Sequence[Callable[[Notice], object]], notice: Notice) -> None:
    """Call *calls* with *notice*; what one raises is said, and hurts no other."""
    for call in list(calls):
        _call(call, notice)


def _call(call: Callable[[Notice], object], notice: Notice) -> None:
    try:
        call(notice)
    except Exception as error:  # noqa: BLE001 - it is the user's
        say(f"a notice was not taken: {type(error).__name__}: {error}")
