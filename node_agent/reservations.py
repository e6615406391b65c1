"""Which devices the jobs get that are about to start here, by the orchestrator's word; it outlives the agent.

A job that Slurm puts back may get other devices, and the word of that be lost with the link. So a start asks
the orchestrator, and without its answer takes what no earlier start has taken.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace

from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.node_agent.state import Reservation, State

# A prolog waits this long for a reservation, and as long again to be registered; the hook gives up after 2 s.
PROLOG_WAIT_S = 0.8


class Reservations:
    """All reservations of this node."""

    def __init__(self, state: State, ask: Callable[[str, int], bool]) -> None:
        """*ask* sends a question about a job, and its number, to the orchestrator; it returns False where the
        link is down.
        """
        self._state = state
        self._ask = ask
        self._told = asyncio.Event()
        self._numbers = itertools.count(1)
        self._questions: dict[int, str] = {}  # that were asked and are not answered: about which job

    async def of(self, job_id: str) -> Reservation | None:
        """Return what a start of a job finds; with an attempt if it may be of an earlier start.

        What comes without being an answer was sent before the question was heard, maybe for the run before.
        """
        known, question = self._state.reservations.get(job_id), next(self._numbers)
        if not self._ask(job_id, question) and known is not None and not known.attempt:
            return known
        self._questions[question] = job_id
        try:
            await asyncio.wait_for(self._answered(question), PROLOG_WAIT_S)
        except asyncio.TimeoutError:
            if question in self._questions:  # else the answer came while the disk was slow
                return known
        finally:
            self._questions.pop(question, None)
        return self._state.reservations.get(job_id)

    async def _answered(self, question: int) -> None:
        while question in self._questions:
            self._told.clear()
            await self._told.wait()

    def ask_again(self) -> None:
        """The link is up, for questions that were lost with the one before, or waited for it."""
        for question, job_id in self._questions.items():
            self._ask(job_id, question)

    def take(self, reservations: Iterable[pb.Reservation], *, all_of_them: bool = False) -> None:
        """Take what the orchestrator says. What it says again, unasked, has been taken by a start still."""
        before = dict(self._state.reservations)
        if all_of_them:
            self._state.reservations.clear()
        for raw in reservations:
            told = Reservation(
                raw.job_id, raw.group, raw.role, tuple(raw.devices), raw.lane, tuple(raw.nodes)
            )
            asked = self._questions.pop(raw.question, None) is not None
            known = before.get(raw.job_id)
            again = not asked and known is not None and told == replace(known, attempt="")
            self._state.reservations[raw.job_id] = known if again and known is not None else told
        self._state.save()
        self._told.set()

    def told(self, order: pb.AgentOrder) -> None:
        """Take an order that says which devices a job gets, or that it has none here."""
        if order.HasField("reserve"):
            self.take([order.reserve])
            return
        self._questions.pop(order.forget.question, None)
        if self._state.reservations.pop(order.forget.job_id, None) is not None:
            self._state.save()
        self._told.set()

    def taken(self, job_id: str, attempt: str) -> None:
        """Note which attempt has started with the job's reservation."""
        known = self._state.reservations.get(job_id)
        if known is not None and known.attempt != attempt:
            self._state.reservations[job_id] = replace(known, attempt=attempt)
            self._state.save()
