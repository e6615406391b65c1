"""Who uses the node's devices: told to the orchestrator, which knows who may; trespassers are killed here."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.node_agent import processes
from slurm_interleave.node_agent.backends.protocol import User
from slurm_interleave.node_agent.contexts import Outcome, Verb, is_left_by_app, on_order
from slurm_interleave.node_agent.link import Link
from slurm_interleave.node_agent.operations import Operations
from slurm_interleave.node_agent.state import Job, State

log = logging.getLogger(__name__)


class Users:
    """Looks at the users of all devices every *every_s* seconds."""

    def __init__(
        self,
        state: State,
        operations: Operations,
        link: Link,
        every_s: float,
        report: Callable[[Job], None],
    ) -> None:
        """Say what is seen through *link*; *report* tells the orchestrator where a job's state is."""
        self._state = state
        self._operations = operations
        self._backend = operations.backend
        self._report = report
        self._link = link
        self._every_s = every_s
        self._said = False  # that somebody is there

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(self._every_s)
            await self.look()

    async def look(self) -> None:
        """Look once. While the orchestrator is away nobody could say who trespasses."""
        if not self._link.connected.is_set():
            return
        uids, registered = self._uids(), self._registered()
        try:
            uses = await asyncio.to_thread(self._uses, uids, registered)
        except OSError as error:
            log.warning("users.blind", extra={"reason": str(error)})
            return
        if uses or self._said:
            self._link.send(pb.AgentMessage(uses=pb.Uses(uses=uses)))
        self._said = bool(uses)

    async def stop(self, order: pb.Stop) -> None:
        """Kill a trespasser, if it still is a process of that job.

        Where it must be saved before, that is done; if it fails, the process is left alone. In both cases,
        and after an `OSError`, the order comes again while the process is there.
        """
        job = self._state.jobs.get(order.job_id)
        if job is None or job.attempt != order.attempt or job.ended:
            return
        try:
            descriptor = await asyncio.to_thread(self._open, order)
        except ProcessLookupError:
            return
        except OSError as error:
            log.warning("users.blind", extra={"reason": str(error)})
            return
        try:
            why = await self.saved_to_kill(job)
            said = {"job": order.job_id, "pid": order.pid}
            if why:
                log.warning("trespass.spared", extra={**said, "reason": why})
                return
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                log.warning("trespass.killed", extra=said)
        finally:
            os.close(descriptor)

    def _open(self, order: pb.Stop) -> int:
        """Return a descriptor of the trespasser. Raises `ProcessLookupError` if it is not one, `OSError`."""
        descriptor = os.pidfd_open(order.pid)
        try:
            # The descriptor is this process's for ever; so what is checked now is what is killed.
            users = [user for user in self._backend.users() if user.pid == order.pid]
            if any(owner(user, self._uids(), self._registered()) == order.job_id for user in users):
                return descriptor
            raise ProcessLookupError
        except BaseException:
            os.close(descriptor)
            raise

    async def saved_to_kill(self, job: Job) -> str:
        """Return why no process of *job* may be killed now: where it must be saved before, that is done."""
        if not self._backend.saves_to_kill:
            return ""
        operations = self._operations
        async with operations.lock(job.job_id):
            decision = on_order(operations.refresh(job), Verb.SNAPSHOT)
            if isinstance(decision, Outcome):
                return decision.error
            result = await operations.run(job, Verb.SNAPSHOT, decision.during, self._backend)
        self._report(job)
        return result.outcome.error

    def _uids(self) -> dict[str, int]:
        return {job.job_id: job.request.uid for job in self._state.jobs.values() if not job.ended}

    def _registered(self) -> dict[int, str]:
        """Return the jobs that end with a process, by its id."""
        jobs = [job for job in self._state.jobs.values() if not job.ended]
        return {job.request.pid: job.job_id for job in jobs if job.request.pid}

    def _uses(self, uids: Mapping[str, int], registered: Mapping[int, str]) -> list[pb.Use]:
        uses = []
        for user in self._backend.users():
            job = owner(user, uids, registered)
            if not user.working and self._left(job):
                continue
            uses.append(pb.Use(device=user.device, pid=user.pid, job_id=job, working=user.working))
        return uses

    def _left(self, job_id: str) -> bool:
        """Tell whether a job has no more on its devices than it left when it suspended itself."""
        job = self._state.jobs.get(job_id)
        return job is not None and is_left_by_app(job.context, self._backend.look(job_id))


def owner(
    user: User, uids: Mapping[str, int], registered: Mapping[int, str], proc: Path = Path("/proc")
) -> str:
    """Return which of the jobs in *uids* (with their users) the process belongs to; "" for none.

    Some were *registered* with a process, which need not have the job in its environment. A process that has
    unset its variables is known by those who started it. Another user's never counts.
    """
    uid = processes.uid(user.pid, proc)
    for pid in _line(user.pid, proc):
        job = registered.get(pid) or processes.job_of(pid, proc)
        if job in uids:
            return job if uids[job] == uid else ""
    return user.claims if uids.get(user.claims, -2) == uid else ""


def _line(pid: int, proc: Path) -> Iterator[int]:
    """Yield *pid* and those that it descends from."""
    while pid > 1:
        yield pid
        pid = processes.parent(pid, proc)
