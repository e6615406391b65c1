"""Carries snapshots, restores and discards out: one at a time per job, many jobs at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from slurm_interleave.client.core import tracing
from slurm_interleave.client.core.errors import Busy, WrongState
from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent import contexts
from slurm_interleave.node_agent.backends.protocol import Backend, Mover, Target
from slurm_interleave.node_agent.contexts import JobContext, Outcome, Seen, Verb
from slurm_interleave.node_agent.host_room import HostRoom, Room
from slurm_interleave.node_agent.results import Result, Results, first_failure, gone, log_move, occupied
from slurm_interleave.node_agent.state import Job, State
from slurm_interleave.node_agent.waits import CANCELLED, Limit, Stop, Stops

log = logging.getLogger(__name__)
ALREADY_RUNNING = "already-running"
_LOG_S = 0.005  # the log comes so much later, when the result is on its way


class Operations:
    """All operations of this agent, by id. An id that is known is never carried out again."""

    def __init__(
        self,
        state: State,
        backend: Backend,
        timeout_s: float,
        mover_of: Callable[[str, str], Mover | None],
        grace_s: float = 5.0,
        room: HostRoom | None = None,
    ) -> None:
        """Move contexts of the jobs in *state*.

        *timeout_s* is for one operation, *grace_s* what a backend may take beyond it to undo what it began.
        *mover_of* gives the mover of a job, or the one that a context was saved by, if that is not *backend*.
        """
        self.backend = backend
        self._state = state
        self._timeout_s = timeout_s
        self._mover_of = mover_of
        self._grace_s = grace_s
        self._room = room
        self.results = Results()
        self.observe: Callable[[Verb, str, Outcome, float], None] | None = None  # told each move
        self._locks: dict[str, asyncio.Lock] = {}
        self._targets: dict[str, Target] = {}
        self._limits: dict[str, Limit] = {}  # of what is under way, by job
        self._stops = Stops()  # of orders that are not done
        self._waiting: list[tuple[str, str]] = []  # jobs and attempts with an order that waits for others

    def refresh(self, job: Job) -> JobContext:
        """Look where the job's state is, remember and return it. Leaves a job with a move under way alone."""
        if job.job_id not in self._targets:
            job.context = contexts.reconciled(job.context, self.look(job.job_id))
        return job.context

    def reported(self, job: Job) -> JobContext:
        """Return what the orchestrator is told of *job*: a restore that waits its turn counts as begun."""
        context = self.refresh(job)
        if any((job.job_id, attempt) in self._waiting for attempt in ("", job.attempt)):
            return replace(context, state=Context.RESTORING)
        return context

    @contextlib.contextmanager
    def expecting(self, orders: Sequence[tuple[str, str]]) -> Iterator[None]:
        """Count orders for these jobs and attempts as waiting their turn while the block lasts."""
        self._waiting.extend(orders)
        try:
            yield
        finally:
            for order in orders:
                self._waiting.remove(order)

    def as_called(self, job: Job) -> JobContext:
        """Return what the v1alpha1 service says of *job*: where nobody can see nothing, something may be."""
        context = self.refresh(job)
        blind = self._mover_of(job.job_id, "") is not None or self.look(job.job_id) is None
        if context.state is Context.NONE and blind:
            return replace(context, state=Context.RESIDENT)
        return context

    async def order(
        self,
        operation: str,
        verb: Verb,
        job_id: str,
        attempt: str,
        after: Sequence[str] = (),
        *,
        beside: bool = False,
    ) -> Result:
        """Carry out an order of the orchestrator, or return the result of that id again.

        With *beside* a context may come back to devices that other jobs are on. It is begun when the
        operations named in *after* have succeeded, and not at all if one failed. One that is not known was
        done in an earlier life of this agent.
        """
        if (known := self.results.get(operation)) is not None:
            return await asyncio.shield(known)
        before = [known for number in after if (known := self.results.get(number)) is not None]
        result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.results.keep(operation, job_id, result)
        stop = self._stops.begin(operation)
        try:
            result.set_result(await self._order_after(before, verb, job_id, attempt, beside, stop))
        except Exception as error:  # noqa: BLE001 - whatever it is, the orchestrator waits for an answer
            self.results.forget(operation)
            result.set_result(self._broken(operation, job_id, error))
        finally:
            self._stops.end(operation)
            result.cancel()  # without effect where it is there
        return result.result()

    def cancel(self, job_id: str, operation: str = "") -> None:
        """Stop *operation*, or else whatever is being done to the state of a job: it fails, and is undone.

        One that waits its turn is not begun; what can only be waited for is undone when it has ended.
        """
        known = self.results.get(operation)
        if operation and not (known is not None and known.done()):
            self._stops.set(operation)
        elif not operation and job_id in self._targets:
            self._targets[job_id].stop.set()

    def call(self, job: Job, verb: Verb, mover: Mover | None = None) -> str:
        """Begin an operation for the v1alpha1 service and return its id; *mover* None: the job's own.

        Raises `Busy`, `JobFaulted` and `WrongState` as that service's table says.
        """
        if self.lock(job.job_id).locked():
            raise Busy(f"job {job.job_id}: an operation is under way; try again when it is done")
        was_resident = job.context.state is Context.RESIDENT
        context = self.as_called(job)
        if context.state is Context.NONE and was_resident:
            # Its processes went since the last look: the operation finds nothing, and that is a success.
            context = replace(context, state=Context.RESIDENT)
        in_place = mover is not None and mover.in_place
        decision = contexts.on_call(context, verb, in_place=in_place)
        if isinstance(decision, Outcome):
            return ALREADY_RUNNING
        if verb is Verb.RESTORE and not in_place and (refusal := self._occupied(job)):
            raise WrongState(refusal)
        operation = f"{verb.value}-{uuid.uuid4().hex}"
        work = self._call(job, verb, decision.during, mover)
        self.results.keep(operation, job.job_id, asyncio.create_task(work, name=operation))
        return operation

    async def discard(self, job: Job) -> None:
        """Forget the state of *job*, which has ended, wherever it is.

        A move under way is stopped; one that does not stop is not waited for.
        """
        if job.job_id in self._targets:
            self._targets[job.job_id].stop.set()
            self._limits[job.job_id].shorten(self._grace_s)
        async with self.lock(job.job_id):
            result = await self.run(job, Verb.DISCARD, job.context.state, self.backend)
        self._locks.pop(job.job_id, None)
        if not result.outcome.ok:
            log.error("discard.failed", extra={"job": job.job_id, "reason": result.outcome.error})

    def lock(self, job_id: str) -> asyncio.Lock:
        """Return what whoever moves the job's state holds."""
        return self._locks.setdefault(job_id, asyncio.Lock())

    async def _order_after(
        self,
        before: Sequence[asyncio.Future[Result]],
        verb: Verb,
        job_id: str,
        attempt: str,
        beside: bool,
        stop: Stop,
    ) -> Result:
        with self.expecting([(job_id, attempt)]):
            failed = await first_failure(before)
        if failed:
            job = self._state.jobs.get(job_id)
            context = job.context.state if job is not None else Context.NONE
            return Result(Outcome(context, error=f"not begun, since what comes before failed: {failed}"))
        return await self._order(verb, job_id, attempt, beside, stop)

    async def _order(self, verb: Verb, job_id: str, attempt: str, beside: bool, stop: Stop) -> Result:
        job = self._state.jobs.get(job_id)
        if job is None or attempt not in ("", job.attempt):
            return gone(job_id, verb)
        async with self.lock(job_id):
            if job.ended:
                return gone(job_id, verb)
            context = self.refresh(job)
            decision = contexts.on_order(context, verb)
            if isinstance(decision, Outcome):
                return Result(decision, context.bytes)
            if stop.is_set():
                return Result(Outcome(context.state, error=f"{CANCELLED} before it began"), context.bytes)
            run = self.run if beside else self._run_in_turn
            return await run(job, verb, decision.during, self.mover(job, verb), stop)

    async def _call(self, job: Job, verb: Verb, during: Context, mover: Mover | None) -> Result:
        async with self.lock(job.job_id):
            if job.ended:
                return gone(job.job_id, verb)
            return await self._run_in_turn(job, verb, during, mover or self.mover(job, verb))

    async def _run_in_turn(
        self, job: Job, verb: Verb, during: Context, mover: Mover, stop: Stop | None = None
    ) -> Result:
        """Run, but bring nothing back to devices that another job is on."""
        if verb is Verb.RESTORE and not mover.in_place and (refusal := self._occupied(job)):
            return Result(Outcome(job.context.state, error=refusal), job.context.bytes)
        return await self.run(job, verb, during, mover, stop)

    def mover(self, job: Job, verb: Verb) -> Mover:
        """Return who moves this state: whoever saved it restores it."""
        saved_by = job.context.saved_by
        if verb is Verb.DISCARD or (verb is Verb.RESTORE and not saved_by):
            return self.backend
        return self._mover_of(job.job_id, saved_by) or self.backend

    async def run(
        self, job: Job, verb: Verb, during: Context, mover: Mover, stop: Stop | None = None
    ) -> Result:
        """Have *mover* do it, with the job's lock held, and remember where the state is then."""
        loop = asyncio.get_running_loop()
        before, start, size, room = job.context, loop.time(), job.context.bytes, Room()
        if verb is Verb.SNAPSHOT and self._room is not None:
            seen = self.look(job.job_id)
            size = seen.bytes if seen is not None else 0
            room = await self._room.place(job, mover, size)
            if room.refusal:
                return Result(Outcome(before.state, error=room.refusal))
        # A restore that fails goes back to the disk that it comes from.
        disk = before.spilled if verb is Verb.RESTORE else room.spill
        devices, living = job.request.devices, not job.ended
        target = Target(job.job_id, devices, self._timeout_s, stop or Stop(), living, disk, room.fits)
        self._targets[job.job_id] = target
        self._limits[job.job_id] = Limit(self._timeout_s + self._grace_s)
        by = mover.name if mover.in_app else ""
        saved_by = by if verb is Verb.SNAPSHOT else before.saved_by
        spilled = room.spill if verb is Verb.SNAPSHOT else before.spilled
        job.context = replace(before, state=during, bytes=size, saved_by=saved_by, spilled=spilled)
        self._state.save_context(job)
        try:
            with tracing.span(f"interleave.{verb.value}", job=job.job_id, backend=mover.name):
                outcome = await self._ask(mover, verb, target, before)
                tracing.told(outcome.error, bytes=outcome.moved)
        finally:
            del self._targets[job.job_id], self._limits[job.job_id]
        job.context = contexts.after(outcome, verb, before, saved_by=by, spilled=room.spill)
        copied = mover.copy_name if verb is Verb.SNAPSHOT and outcome.ok else ""
        self._state.save_moved(job, copied, 0 if room.spill else outcome.moved)
        seconds = loop.time() - start
        loop.call_later(_LOG_S, log_move, job.job_id, verb, mover.name, outcome, seconds)
        if self.observe is not None:
            loop.call_later(_LOG_S, self.observe, verb, mover.name, outcome, seconds)
        return Result(outcome, outcome.moved or job.context.bytes, seconds)

    async def _ask(self, mover: Mover, verb: Verb, target: Target, before: JobContext) -> Outcome:
        """Return the mover's outcome; of one that raises, where the backend sees the state."""
        try:
            work = getattr(mover, verb.value)(target)
            outcome: Outcome = await self._limits[target.job].over(work)
        except asyncio.TimeoutError:
            ended = self._state.jobs[target.job].ended
            when = "when it was told to stop" if ended else f"within {target.deadline_s:g} s"
            target.stop.set()
            text = f"backend {mover.name} gave no answer to {verb.value} {when}"
            return Outcome(Context.FAULTED, error=text)
        except Exception as error:
            log.exception("backend.broken", extra={"job": target.job, "backend": mover.name})
            seen = self.look(target.job)
            return contexts.after_raise(before, seen, f"backend {mover.name} failed: {error!r}")
        return outcome

    def look(self, job_id: str) -> Seen | None:
        """Return what the backend sees of a job; None where it cannot look, now or ever."""
        try:
            return self.backend.look(job_id)
        except OSError as error:
            log.warning("backend.blind", extra={"job": job_id, "reason": str(error)})
            return None

    def _occupied(self, job: Job) -> str:
        """Return who else is on the devices of *job*, in words; nothing where nobody is."""
        return occupied(job, self._state.jobs.values(), lambda other: self.refresh(other).state)

    def _broken(self, operation: str, job_id: str, error: Exception) -> Result:
        """Return the answer to an order that could not be carried out to its end."""
        log.error("order.broken", extra={"operation": operation, "job": job_id, "reason": repr(error)})
        job = self._state.jobs.get(job_id)
        context = self.refresh(job) if job is not None else JobContext()
        return Result(Outcome(context.state, error=str(error) or repr(error)), context.bytes)
