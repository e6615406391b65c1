"""Device state in the memory of the processes themselves: it goes and comes back with them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

from slurm_interleave.client.core.errors import WrongState
from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent.backends.freed import look
from slurm_interleave.node_agent.backends.protocol import Target
from slurm_interleave.node_agent.contexts import JobContext, Verb
from slurm_interleave.node_agent.operations import Operations
from slurm_interleave.node_agent.state import Job, State
from slurm_interleave.node_agent.waits import Stop


class InProcess:
    """Holds the state of jobs there while their processes are saved or brought back."""

    def __init__(self, state: State, operations: Operations) -> None:
        self._state = state
        self._operations = operations

    @contextlib.asynccontextmanager
    async def holding(self, job: Job, stop: Stop) -> AsyncIterator[None]:
        """Keep the job's state in the memory of its own processes; nobody else moves it in the block.

        *stop* ends the move there. What an application has left on the devices goes there too. After a block
        that raises, that rest is back where it was, beside whoever is there; state that had the devices stays
        saved for the job's next turn, since others may have been given them. Raises `WrongState` if that
        cannot be.
        """
        async with self._operations.lock(job.job_id):
            await look(self._operations.backend, job.job_id)
            before, mover = self._operations.refresh(job).state, self._operations.mover(job, Verb.SNAPSHOT)
            if before is not Context.NONE and not mover.in_process:
                where = f"backend {mover.name} keeps the job's device state outside of its processes"
                raise WrongState(f"{where}, so it would not be saved with them")
            if before is Context.RESIDENT:
                result = await self._operations.run(job, Verb.SNAPSHOT, Context.SAVING, mover, stop)
                if not result.outcome.ok:
                    raise WrongState(result.outcome.error)
            suspended = job.context
            try:
                await self._save_rest(job, stop)
                yield
            except BaseException:
                if before is not Context.RESIDENT and job.context != suspended:
                    await self._operations.run(job, Verb.RESTORE, Context.RESTORING, self._operations.backend)
                    self._know(job, suspended)
                raise

    async def _save_rest(self, job: Job, stop: Stop) -> None:
        """Save what an application has left on the devices. Raises `WrongState`."""
        suspended, rest = job.context, self._operations.look(job.job_id)
        if not suspended.in_app or rest is None or rest.state is not Context.RESIDENT:
            return
        backend = self._operations.backend
        if not backend.in_process:
            where = f"the application left {rest.bytes} bytes on its devices, which backend {backend.name}"
            raise WrongState(f"{where} would keep outside of its processes")
        result = await self._operations.run(job, Verb.SNAPSHOT, Context.SAVING, backend, stop)
        if not result.outcome.ok:
            self._know(job, suspended)
            raise WrongState(result.outcome.error)
        saved_by = f"{suspended.saved_by}+{backend.name}"
        self._know(
            job, replace(suspended, bytes=suspended.bytes + job.context.bytes, saved_by=saved_by, kept=0)
        )

    @contextlib.asynccontextmanager
    async def coming_back(
        self, job: Job, context: JobContext, carried: Mapping[str, Any]
    ) -> AsyncIterator[None]:
        """Bring the job's processes back in the block: *context* is its state, in their memory.

        Nobody moves it meanwhile. Raises `WrongState` if it could not be restored here.
        """
        target = Target(job.job_id, job.request.devices, 0.0)
        async with self._operations.lock(job.job_id):
            saved = context.state is Context.SAVED
            if saved and (refusal := self._operations.backend.refuses(target, carried)):
                raise WrongState(refusal)
            self._know(job, context if saved else job.context)
            try:
                yield
            except BaseException:
                self._know(job, JobContext())
                raise
            if why := await self._operations.backend.came_back(target, carried):
                fault = f"its processes came back, but their device state cannot be found: {why}"
                self._know(job, JobContext(Context.FAULTED, context.bytes, fault))

    def _know(self, job: Job, context: JobContext) -> None:
        job.context = context
        self._state.save_context(job)
