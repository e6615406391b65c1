"""Jobs on this node: what a prolog starts and an epilog ends."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import time
import uuid
from collections import defaultdict
from collections.abc import Callable

from slurm_interleave.client.core.errors import BadArgument, InterleaveError
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.node_agent import processes
from slurm_interleave.node_agent.contexts import is_same_attempt
from slurm_interleave.node_agent.folders import JobFolders
from slurm_interleave.node_agent.images import Images
from slurm_interleave.node_agent.operations import Operations
from slurm_interleave.node_agent.state import Job, Request, State

log = logging.getLogger(__name__)


class Jobs:
    """Starts and ends jobs, and tells the orchestrator."""

    def __init__(
        self,
        state: State,
        operations: Operations,
        folders: JobFolders,
        images: Images,
        tell: Callable[[pb.AgentMessage], None],
    ) -> None:
        """Keep the jobs of *state*; *tell* sends to the orchestrator."""
        self._state = state
        self._operations = operations
        self._folders = folders
        self._images = images
        self.tell = tell
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._registered: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._cautions: dict[str, str] = {}  # as last seen, by job

    def registered(self, job: Job) -> asyncio.Event:
        """Return the event that the orchestrator knows this attempt."""
        return self._registered[job.attempt]

    def now_registered(self, job_id: str, attempt: str) -> None:
        """The orchestrator says that it knows *attempt*."""
        job = self._state.jobs.get(job_id)
        if job is not None and job.attempt == attempt:
            self.registered(job).set()

    async def recover(self) -> None:
        """Go on where an earlier agent stopped: finish ends, open sockets, look where contexts are."""
        self._folders.remove_strangers(self._state.jobs)
        for job in list(self._state.jobs.values()):
            if job.ended:
                await self.end(job.job_id)
                continue
            before = job.context
            context = self._operations.refresh(job)
            log.info(
                "job.recovered",
                extra={"job": job.job_id, "was": before.state.value, "context": context.state.value},
            )
            try:
                await self._folders.open(job)
            except InterleaveError as error:
                log.warning("job.unserved", extra={"job": job.job_id, "reason": str(error)})
        self._state.save()

    async def start(self, request: Request, taken_by: str = "") -> None:
        """Register a job's attempt and make its environment file. Raises `ConfigError`, `BadArgument`.

        Again for a job that just starts: the same attempt. Again for one that ran: a new one, and nothing is
        left of the old; not so if its devices are those that attempt *taken_by* was given.
        """
        async with self._locks[request.job]:
            job = self._state.jobs.get(request.job)
            if job is None or not await self._is_same(job, request):
                if taken_by:
                    raise BadArgument(
                        f"job {request.job}: this agent knows the devices of its last start alone, and "
                        "interleaved, which may have given it others since, does not answer; "
                        "requeue the job when it does"
                    )
                await self._end(request.job)
                job = self._new(request)
                await self._folders.open(job)
                self._state.jobs[request.job] = job
                self._state.save()
                log.info(
                    "job.started",
                    extra={"job": job.job_id, "group": request.group, "devices": list(request.devices)},
                )
            else:
                await self._folders.open(job)
            self._cautions[job.job_id] = await self._caution(job)
            self.report(job)

    async def look_again(self, job: Job, _pids: list[int]) -> None:
        """Tell the orchestrator if what keeps *job* from being saved has changed."""
        seen = await self._caution(job)
        if self._state.jobs.get(job.job_id) is job and seen != self._cautions.get(job.job_id, ""):
            self._cautions[job.job_id] = seen
            if seen:
                log.warning("job.caution", extra={"job": job.job_id, "reason": seen})
            else:
                log.info("job.caution_over", extra={"job": job.job_id})
            self.report(job)

    async def _caution(self, job: Job) -> str:
        try:
            return await asyncio.to_thread(self._operations.backend.caution, job.job_id)
        except OSError:  # it cannot be seen now
            return self._cautions.get(job.job_id, "")

    def _new(self, request: Request) -> Job:
        resumes = self._images.find(request.job, request.uid, request.group) is not None
        if resumes and request.restarts == 0:
            # Of another job, which had this id before.
            log.warning(
                "image.stale", extra={"job": request.job, "image": self._images.put_aside(request.job)}
            )
            resumes = False
        return Job(request, uuid.uuid4().hex, secrets.token_urlsafe(32), began=time.time(), resumes=resumes)

    async def end(self, job_id: str) -> None:
        """Forget a job with all that it left, and say so to the orchestrator. An unknown one is fine."""
        async with self._locks[job_id]:
            await self._end(job_id)

    def report(self, job: Job) -> None:
        """Tell the orchestrator of a job that is here, and where its context is."""
        if self._state.jobs.get(job.job_id) is job and not job.ended:
            self.tell(pb.AgentMessage(started=self.describe(job)))

    def describe(self, job: Job) -> pb.JobReport:
        """Return what the orchestrator must know of *job*."""
        request, context = job.request, self._operations.reported(job)
        return pb.JobReport(
            job_id=request.job,
            attempt=job.attempt,
            uid=request.uid,
            user=request.user,
            account=request.account,
            partition=request.partition,
            group=request.group,
            role=request.role,
            backend=request.backend or self._operations.backend.name,
            devices=request.devices,
            context=context.state.value,
            bytes=context.bytes,
            token_sha256=_digest(job.token),
            resumed_token_sha256=_digest(job.resumed_token) if job.resumed_token else b"",
            being_saved=job.saving,
            fault=context.fault,
            nodes=request.nodes,
            priority=request.priority,
            attendance=job.attendance.value,
            restarts=request.restarts,
            started=job.began,
            profile=request.profile,
            max_slowdown=request.max_slowdown,
            caution=self._cautions.get(job.job_id, ""),
        )

    async def _is_same(self, job: Job, request: Request) -> bool:
        alive = await asyncio.to_thread(processes.of_jobs, [job.job_id])
        return not job.ended and is_same_attempt(
            self._operations.refresh(job),
            same_request=request.is_like(job.request),
            had_processes=job.had_processes,
            has_processes=bool(alive[job.job_id]),
        )

    async def _end(self, job_id: str) -> None:
        self._cautions.pop(job_id, None)
        job = self._state.jobs.get(job_id)
        if job is None:
            await self._folders.close(job_id)
            return
        job.ended = True  # whatever happens to this agent, the next one goes on from here
        self._state.save()
        await self._operations.discard(job)
        del self._state.jobs[job_id]
        self._state.save()
        self.tell(pb.AgentMessage(over=pb.JobOver(job_id=job_id, attempt=job.attempt)))
        self._registered.pop(job.attempt, None)
        await self._folders.close(job_id)
        log.info("job.ended", extra={"job": job_id})


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
