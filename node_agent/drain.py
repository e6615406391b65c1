"""Jobs leave the node with all that their processes are, and go on elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from slurm_interleave.client.core.errors import InterleaveError, WrongState
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.node_agent import processes
from slurm_interleave.node_agent.cgroups import entrance
from slurm_interleave.node_agent.criu import Criu
from slurm_interleave.node_agent.images import Image, Images
from slurm_interleave.node_agent.in_process import InProcess
from slurm_interleave.node_agent.operations import Operations
from slurm_interleave.node_agent.outputs import inherited, pipes
from slurm_interleave.node_agent.requeue import requeue_in_slurm
from slurm_interleave.node_agent.state import Job, State, read_context
from slurm_interleave.node_agent.waits import CANCELLED, Stop

log = logging.getLogger(__name__)


class Drains:
    """Saves and resumes the processes of jobs."""

    def __init__(
        self,
        state: State,
        operations: Operations,
        images: Images,
        criu: Criu,
        tell: Callable[[pb.AgentMessage], None],
        report: Callable[[Job], None],
        registered: Callable[[Job], asyncio.Event],
        requeue: Callable[[str, int | None], Awaitable[None]] | None = None,
    ) -> None:
        """*tell* sends to the orchestrator, *report* tells it where a job's state is, *registered* is set
        once it knows the attempt. *requeue* has Slurm start a job again later, by its id and its number of
        restarts until now, and fails only where the job is known to run on (default: scontrol).
        """
        self._state = state
        self._backend = operations.backend
        self._lock = operations.lock
        self._in_process = InProcess(state, operations)
        self._images = images
        self._criu = criu
        self._requeue = requeue or requeue_in_slurm
        self._tell = tell
        self._report = report
        self._registered = registered
        self._stops: dict[str, Stop] = {}  # of jobs that are being saved
        self._back: set[asyncio.Task[int]] = set()  # wait for the ends of processes that came back
        # Ends the connections that processes of a job have to its socket, and keeps them off in the block.
        self.unplugged: Callable[[Job, Sequence[int]], AbstractAsyncContextManager[None]] = _left_alone

    async def save(self, order: pb.Drain) -> pb.DrainUpdate:
        """Save a job's processes, have it requeued, and tell how it went; if badly, the job runs on."""
        job = self._state.jobs.get(order.job_id)
        if job is None or job.attempt != order.attempt or job.ended:
            update = pb.DrainUpdate(
                job_id=order.job_id, error=f"job {order.job_id} is not on this node any more"
            )
        elif job.saving:
            update = pb.DrainUpdate(job_id=order.job_id, error="it is being saved already", under_way=True)
        else:
            return await self._carry_out(job, self._save)
        self._tell(pb.AgentMessage(drained=update))
        return update

    def cancel(self, job_id: str) -> None:
        """Let a job go on that is being saved, and drop its image; not once Slurm was asked to requeue it."""
        if (stop := self._stops.get(job_id)) is not None:
            stop.set()

    def unfinished(self) -> list[Coroutine[None, None, pb.DrainUpdate]]:
        """Return what is to be done for the jobs that an agent saved when it was killed.

        It may have left their processes standing still. A complete image is followed by the requeue that was
        to come; else they go on.
        """
        jobs = [job for job in self._state.jobs.values() if job.saving and not job.ended]
        return [self._carry_out(job, self._go_on_with) for job in jobs]

    async def _carry_out(self, job: Job, save: Callable[[Job], Awaitable[Image]]) -> pb.DrainUpdate:
        began = time.monotonic()
        self._stops[job.job_id] = Stop()
        self._note(job, saving=True)
        try:
            image = await save(job)
        except BaseException as error:
            if isinstance(error, Exception):  # else this agent ends, and the next one goes on from here
                self._note(job, saving=False)  # where it went well it is over soon
            if not isinstance(error, (InterleaveError, OSError)):
                raise
            log.warning("drain.failed", extra={"job": job.job_id, "reason": str(error)})
            update = pb.DrainUpdate(job_id=job.job_id, error=str(error))
        else:
            seconds = time.monotonic() - began
            size = {"job": job.job_id, "bytes": image.bytes, "seconds": round(seconds, 3)}
            log.info("drain.done", extra=size)
            update = pb.DrainUpdate(job_id=job.job_id, ok=True, bytes=image.bytes, seconds=seconds)
        finally:
            del self._stops[job.job_id]
            self._report(job)  # where its state is now
        self._tell(pb.AgentMessage(drained=update))
        return update

    def _note(self, job: Job, *, saving: bool) -> None:
        job.saving = saving
        self._state.save()

    async def _save(self, job: Job) -> Image:
        self._images.folder(job.job_id)
        if len(job.request.nodes) > 1:
            raise WrongState(
                f"job {job.job_id} runs on {len(job.request.nodes)} nodes; one alone cannot be saved"
            )
        roots, stop = await asyncio.to_thread(_roots, job.job_id, job.request.uid), self._stops[job.job_id]
        if len(roots) > 1:
            raise WrongState(
                f"job {job.job_id} has {len(roots)} process trees that `interleave run` started (from "
                f"{', '.join(map(str, roots))}), and only one can be saved; its script must run one command "
                "there, whose processes stay its descendants"
            )
        await self._criu.check()
        async with self._in_process.holding(job, stop):
            return await self._dump(job, roots[0], stop)

    async def _go_on_with(self, job: Job) -> Image:
        request = job.request
        async with self._lock(job.job_id):
            if self._images.enabled:
                await self._criu.end(self._images.begun(job.job_id))
            roots = await asyncio.to_thread(_roots, job.job_id, request.uid)
            image = self._images.find(job.job_id, request.uid, request.group)
            if image is not None and image.attempt == job.attempt and image.pid in roots:
                return await self._put_back(job, image.pid, image)
            for root in roots:
                _go_on(root)
            if self._images.enabled:
                self._images.drop(job.job_id)
        raise WrongState("the node's agent was restarted meanwhile; drain the node again")

    async def _dump(self, job: Job, root: int, stop: Stop) -> Image:
        request = job.request
        folder = self._images.begin(job.job_id)
        try:
            async with self.unplugged(job, list(_tree(root))):
                await self._criu.dump(root, folder, stop)
            if stop.is_set():
                raise WrongState(CANCELLED)
            image = self._images.finish(
                Image(
                    job.job_id,
                    request.uid,
                    request.group,
                    job.resumed_token or job.token,
                    root,
                    pipes(root),
                    context=vars(job.context),
                    carried=self._backend.carried(job.job_id),
                    attempt=job.attempt,
                )
            )
        except BaseException:
            _go_on(root)
            self._images.drop(job.job_id)
            raise
        return await self._put_back(job, root, image)

    async def _put_back(self, job: Job, root: int, image: Image) -> Image:
        """Have Slurm start the job again later, and end what is on disk now.

        Until it is known whether Slurm does, the processes stand still: had they gone on, neither they nor
        the image alone would be the job. An agent that ends meanwhile leaves both to the next one.
        """
        try:
            await self._requeue(job.job_id, job.request.restarts)
        except Exception:
            _go_on(root)
            self._images.drop(job.job_id)
            raise
        # Slurm would let it run on first: it sends SIGCONT and SIGTERM, and SIGKILL after KillWait.
        if not job.ended:  # else the process id may be another's
            _send(root, signal.SIGKILL)
        return image

    async def resume(self, job: Job, asked: pb.ResumeRequest) -> AsyncGenerator[pb.ResumeUpdate, None]:
        """Bring the job's processes back to where the caller is. Raises `WrongState`."""
        caller, theirs = asked.pid, {1: asked.stdout, 2: asked.stderr}
        image = self._images.find(job.job_id, job.request.uid, job.request.group)
        if image is None:
            raise WrongState(f"job {job.job_id} has no saved processes")
        if processes.uid(caller) != job.request.uid:
            raise WrongState(f"process {caller} is not one of job {job.job_id}")
        # They know the token of an earlier run, which is that run's for whoever does not know this one.
        await self._registered(job).wait()
        folder = self._images.folder(job.job_id)
        try:
            await self._criu.check()
            context = read_context(image.context)
            async with self._in_process.coming_back(job, context, image.carried):
                job.resumed_token = image.token
                self._state.save()
                self._report(job)  # before they can ask for a turn
                with inherited(image.outputs, caller, theirs) as replaced:
                    pid = await self._criu.restore(folder, entrance(caller), replaced)
        except (InterleaveError, OSError) as error:
            kept, job.resumed_token = self._images.put_aside(job.job_id), ""
            self._report(job)
            log.warning("resume.failed", extra={"job": job.job_id, "reason": str(error), "image": kept})
            raise WrongState(f"{error}; what was saved is kept in {kept}") from None
        log.info("resume.done", extra={"job": job.job_id, "pid": pid})
        self._images.drop(job.job_id)
        # They are children of this process, which must take note of their end even if the caller has gone.
        ended = asyncio.create_task(_exit_code(pid))
        self._back.add(ended)
        ended.add_done_callback(self._back.discard)
        yield pb.ResumeUpdate(pid=pid)
        yield pb.ResumeUpdate(exit_code=await asyncio.shield(ended))


def _roots(job_id: str, uid: int) -> list[int]:
    """Return the processes that `interleave run` started, or that have left their parents since: marked, by
    one who is not. Raises `WrongState` if there are none.
    """
    found = processes.of_jobs([job_id])[job_id]
    # Anybody can give his process this job's variables; what he started is not the job's.
    marked = [pid for pid in found if processes.uid(pid) == uid and _is_marked(pid)]
    if roots := [pid for pid in marked if not _is_marked(processes.parent(pid))]:
        return roots
    raise WrongState(
        f"job {job_id} has no process that `interleave run` started; "
        "its script must say `interleave run COMMAND`"
    )


def _is_marked(pid: int) -> bool:
    """Tell whether it was started by `interleave run`, or by what that started."""
    return processes.variables(pid).get("INTERLEAVE_RUN") == "1"


def _left_alone(_job: Job, _pids: Sequence[int]) -> AbstractAsyncContextManager[None]:
    return contextlib.nullcontext()


def _tree(root: int) -> Iterator[int]:
    yield root
    for children in Path(f"/proc/{root}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in children.read_text().split():
                yield from _tree(int(child))


def _send(root: int, number: signal.Signals) -> None:
    for pid in list(_tree(root)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _go_on(root: int) -> None:
    _send(root, signal.SIGCONT)


async def _exit_code(pid: int) -> int:
    """Wait for the end of a child."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    descriptor = os.pidfd_open(pid)
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    return _reaped(pid)


def _reaped(pid: int) -> int:
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code if code >= 0 else 128 - code
