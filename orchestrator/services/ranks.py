"""Where the ranks of a job meet."""

from __future__ import annotations

import asyncio
from typing import Any

from slurm_interleave.client.arrivals import arrival
from slurm_interleave.client.connect import Call
from slurm_interleave.client.core.meetings import Meetings
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc
from slurm_interleave.orchestrator.auth import Gate
from slurm_interleave.orchestrator.core.state import State


class RanksService(rpc.RanksServicer):
    """In memory alone: ranks whom a restart cuts off ask again, and say where they are."""

    def __init__(self, gate: Gate, state: State) -> None:
        self._gate = gate
        self._state = state
        self._meetings = Meetings()
        self._news: dict[str, asyncio.Event] = {}  # by job, while ranks of it wait

    async def Meet(self, request: pb.MeetRequest, context: Any) -> pb.MeetReply:
        """Answer when all ranks have come."""
        caller = await self._gate.identify(dict(context.invocation_metadata()), Call("Ranks/Meet", request))
        one = arrival(request)
        self._gate.require_job(caller, one.job)
        if not self._meetings.knows(one.job):
            self._forget_ended()
        if self._meetings.arrive(one) and one.job in self._news:
            self._news.pop(one.job).set()
        try:
            with self._meetings.waiting(one):
                while (word := self._meetings.answer(one)) is None:
                    await self._news.setdefault(one.job, asyncio.Event()).wait()
        finally:
            if not self._meetings.awaited(one.job):
                self._news.pop(one.job, None)
        return pb.MeetReply(word=word)

    def _forget_ended(self) -> None:
        self._meetings.keep_only(self._state.jobs)
        for job in [job for job in self._news if job not in self._state.jobs]:
            self._news.pop(job).set()
