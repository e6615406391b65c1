"""Where the ranks of a job meet in `slurm_interleave.client.testing`."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import grpc

from slurm_interleave.client.arrivals import arrival
from slurm_interleave.client.connect import ERROR_KEY
from slurm_interleave.client.core.errors import InterleaveError
from slurm_interleave.client.core.meetings import Meetings
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc


class RanksHere(rpc.RanksServicer):
    """The same as the orchestrator's, for threads."""

    def __init__(self) -> None:
        self._meetings = Meetings()
        self._changed = threading.Condition()

    def Meet(self, request: pb.MeetRequest, context: Any) -> pb.MeetReply:
        """Answer when all ranks have come."""
        context.add_callback(self._wake)
        with answered(context), self._changed:
            one = arrival(request)
            if self._meetings.arrive(one):
                self._changed.notify_all()
            with self._meetings.waiting(one):
                while (word := self._meetings.answer(one)) is None and context.is_active():
                    self._changed.wait()
            return pb.MeetReply(word=word)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


@contextlib.contextmanager
def answered(context: Any) -> Iterator[None]:
    """Answer an error of ours as the orchestrator does."""
    try:
        yield
    except InterleaveError as error:
        context.set_trailing_metadata(((ERROR_KEY, type(error).__name__),))
        context.abort(grpc.StatusCode[error.status], str(error))
