"""The agent as a whole: hooks and orders come in, jobs and their contexts change, reports go out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import grpc

from slurm_interleave.client.connect import open_aio_channel
from slurm_interleave.client.core import tracing
from slurm_interleave.client.core.errors import WrongState
from slurm_interleave.client.core.groups import DeclaredGroup
from slurm_interleave.client.core.hook_server import HookServer, Peer
from slurm_interleave.client.core.hook_server import Verb as HookVerb
from slurm_interleave.client.core.metrics import Metrics, serving_metrics
from slurm_interleave.client.sim.settings import GIB, SimConfig
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.node_agent import endpoints, environment, host_memory, requests, sockets
from slurm_interleave.node_agent.about import about
from slurm_interleave.node_agent.attendance import Register
from slurm_interleave.node_agent.backends.channel import Channels
from slurm_interleave.node_agent.backends.protocol import Backend, Charge
from slurm_interleave.node_agent.config import AgentConfig
from slurm_interleave.node_agent.contexts import Verb
from slurm_interleave.node_agent.criu import Criu
from slurm_interleave.node_agent.drain import Drains
from slurm_interleave.node_agent.folders import JobFolders
from slurm_interleave.node_agent.forward import Forwarder
from slurm_interleave.node_agent.host_room import HostRoom
from slurm_interleave.node_agent.images import Images
from slurm_interleave.node_agent.job_service import JobService
from slurm_interleave.node_agent.jobs import Jobs
from slurm_interleave.node_agent.link import Link
from slurm_interleave.node_agent.movers import Movers, parse_backend
from slurm_interleave.node_agent.operations import Operations
from slurm_interleave.node_agent.processes import NO_PROCESS, Process
from slurm_interleave.node_agent.registrations import Registrations
from slurm_interleave.node_agent.reservations import PROLOG_WAIT_S, Reservations
from slurm_interleave.node_agent.results import Result
from slurm_interleave.node_agent.snapshot_service import SnapshotService
from slurm_interleave.node_agent.spill import RankSpill
from slurm_interleave.node_agent.state import Job, Reservation, State
from slurm_interleave.node_agent.users import Users
from slurm_interleave.node_agent.waits import until_one_ends
from slurm_interleave.node_agent.watch import Watch

log = logging.getLogger(__name__)
_VERBS = {
    pb.Operate.SNAPSHOT: Verb.SNAPSHOT,
    pb.Operate.RESTORE: Verb.RESTORE,
    pb.Operate.DISCARD: Verb.DISCARD,
}


class Agent:
    """One node's agent; made inside the event loop, `run` serves until it is cancelled."""

    def __init__(
        self,
        config: AgentConfig,
        sim: SimConfig,
        backend: Backend,
        state: State,
        groups: Mapping[str, DeclaredGroup] | None = None,
    ) -> None:
        """Put the parts together; nothing is served yet. Jobs may register for *groups* without Slurm."""
        self._config = config
        self._sim = sim
        self._backend = backend
        self._state = state
        self._channels = Channels()
        self._link = Link(config, self._hello, self._take)
        disk = partial(host_memory.of_disk, Path(config.spill_dir)) if config.spill_dir else None
        self._spill = RankSpill(Path(config.spill_dir)) if config.spill_dir else None
        self._movers = Movers(backend, self._channels, state.jobs.get, self._spill)
        room = self._room = HostRoom(state, int(config.host_memory_gib * GIB), disk=disk)
        self._operations = Operations(state, backend, config.operation_timeout_s, self._movers.of, room=room)
        self._folders = JobFolders(
            config, lambda job: environment.as_text(self._variables(job)), self._serve_job
        )
        images = Images(Path(config.image_dir) if config.image_dir else None)
        jobs = self._jobs = Jobs(state, self._operations, self._folders, images, self._link.send)
        criu = Criu(config.criu, config.operation_timeout_s)
        self._drains = Drains(state, self._operations, images, criu, jobs.tell, jobs.report, jobs.registered)
        here = {name: group for name, group in (groups or {}).items() if config.node in group.nodes}
        self._users = Users(state, self._operations, self._link, config.watch_s, jobs.report)
        told = self._variables, self._users.saved_to_kill
        self._registrations = Registrations(config, here, state, self._start, self._jobs.end, *told)
        self.register = Register(state, self._operations.look, self._jobs.report, config.job_folder)
        self._drains.unplugged = self.register.unplugged
        notices = (self.register.notice, jobs.look_again)
        self._watch = Watch(state, jobs.end, config.watch_s, notices=notices)
        self.ready, self.metrics_port = asyncio.Event(), 0  # the port is there once it is ready
        self._reservations = Reservations(state, self._ask_for_devices)
        self._told: dict[str, Job] = {}
        self._tasks: set[asyncio.Task[object]] = set()
        self._orchestrator = open_aio_channel(config.orchestrator)

    async def run(self) -> None:
        """Serve; raises whatever ends a part that must not end."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._backend.close)
            await self._backend.recover([job.job_id for job in self._state.jobs.values() if not job.ended])
            if self._spill is not None:
                await self._spill.sweep()
            stack.push_async_callback(self._folders.close_all)
            stack.push_async_callback(self._orchestrator.close)
            await self._jobs.recover()
            for saved in self._drains.unfinished():
                self._spawn(saved)
            await stack.enter_async_context(self._registrations)
            asyncio.get_running_loop().run_in_executor(None, endpoints.own_names)  # no job is to wait for it
            hooks: dict[str, HookVerb] = {"job-start": self._job_start, "job-end": self._job_end}
            hooks["about"] = about(self._config.node, self._backend, self._link)
            await stack.enter_async_context(HookServer(self._config.hook_socket, hooks))
            port = await stack.enter_async_context(self._tcp())
            metrics = serving_metrics(self._config.metrics, "agent", self._metrics)
            self.metrics_port = await stack.enter_async_context(metrics)
            parts = [asyncio.create_task(part.run()) for part in (self._link, self._watch, self._users)]
            who = {"node": self._config.node, "backend": self._backend.name, "port": port}
            log.info("ready", extra={**who, "pid": os.getpid()})
            self.ready.set()
            await until_one_ends(parts)

    @contextlib.asynccontextmanager
    async def _tcp(self) -> AsyncIterator[int]:
        """Serve the v1alpha1 service for all jobs if [agent] listen asks for it; give the port, or 0."""
        if not self._config.listen:
            yield 0
            return
        server, port = await sockets.serve(self._config.listen, self._service(""), [self._backend.name])
        try:
            yield port
        finally:
            await sockets.stop(server)

    def _metrics(self) -> Metrics:
        from slurm_interleave.node_agent import metrics

        return metrics.Metrics(self._state, self._operations, self._link.connected)

    async def _job_start(self, raw: dict[str, Any], _peer: Peer) -> Mapping[str, Any]:
        """The prolog: a job is about to start here."""
        job_id = requests.parse_job(raw)
        named = bool(raw.get("devices"))
        known = self._state.reservations.get(job_id) if named else await self._reservations.of(job_id)
        await self._start(raw, known)
        job = self._state.jobs.get(job_id)
        if job is None:
            raise WrongState(f"job {job_id} was over before this node had said that it runs here")
        if not named:
            self._reservations.taken(job_id, job.attempt)
        return {"environment": str(self._folders.environment(job))}

    async def _start(
        self, raw: Mapping[str, Any], reservation: Reservation | None, process: Process = NO_PROCESS
    ) -> None:
        """Start a job, and wait a moment until the orchestrator knows it."""
        known = {device.index: device.uuid for device in self._backend.devices()}
        request = requests.parse(raw, reservation, self._config.node, known)
        movers = parse_backend(str(raw.get("backend") or ""), self._backend.name)
        request = replace(request, pid=process.pid, started=process.started, backend=movers)
        taken_by = "" if raw.get("devices") or reservation is None else reservation.attempt
        await self._jobs.start(request, taken_by)
        job = self._state.jobs[request.job]
        if self._link.connected.is_set():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._jobs.registered(job).wait(), PROLOG_WAIT_S)

    async def _job_end(self, raw: dict[str, Any], _peer: Peer) -> Mapping[str, Any]:
        """The epilog: a job is over here."""
        await self._jobs.end(requests.parse_job(raw))
        return {}

    def _ask_for_devices(self, job_id: str, question: int) -> bool:
        if not self._link.connected.is_set():
            return False
        self._link.send(pb.AgentMessage(starting=pb.JobStarting(job_id=job_id, question=question)))
        return True

    def _hello(self) -> pb.Hello:
        """Return the whole truth of this node: a job whose end is not carried out yet is here still."""
        self._told = dict(self._state.jobs)
        return pb.Hello(
            node=self._config.node,
            version=version("slurm-interleave"),
            devices=[
                pb.Device(index=d.index, uuid=d.uuid, type=d.type, memory_bytes=d.memory_bytes)
                for d in self._backend.devices()
            ],
            jobs=[self._jobs.describe(job) for job in self._told.values()],
            trespass=self._config.trespass,
            sent=time.time(),
            host_bytes=0 if self._backend.charge is Charge.NOTHING else self._room.size,
            cancels=True,
        )

    def _take(self, order: pb.AgentOrder) -> None:
        """Take an order; what lasts goes on in a task of its own."""
        match order.WhichOneof("order"):
            case "welcome":
                self._welcomed(order.welcome)
            case "reserve" | "forget":
                self._reservations.told(order)
            case "registered":
                self._jobs.now_registered(order.registered.job_id, order.registered.attempt)
            case "cancel":
                self._operations.cancel(order.cancel.job_id, order.cancel.operation_id)
                # A drain that was ordered just before is a task that begins first.
                asyncio.get_running_loop().call_soon(self._drains.cancel, order.cancel.job_id)
            case "drain":
                self._spawn(self._drains.save(order.drain))
            case "stop":
                self._spawn(self._users.stop(order.stop))
            case _:
                for chain in _chains(order.operate):
                    self._spawn(self._operate(chain))

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _welcomed(self, welcome: pb.Welcome) -> None:
        self._reservations.take(welcome.reservations, all_of_them=True)
        for job in self._told.values():
            self._jobs.registered(job).set()
        asyncio.get_running_loop().call_soon(self._reservations.ask_again)  # the link counts as up by then

    async def _operate(self, orders: Sequence[pb.Operate]) -> None:
        with self._operations.expecting([(order.job_id, order.attempt) for order in orders[1:]]):
            for order in orders:
                with tracing.within(order.traceparent):
                    result = await self._operations.order(
                        order.operation_id,
                        _VERBS[order.verb],
                        order.job_id,
                        order.attempt,
                        order.after,
                        beside=order.beside,
                    )
                self._link.send(pb.AgentMessage(done=[_done(order, result)]))

    def _service(self, only: str) -> SnapshotService:
        return SnapshotService(
            self._state, self._operations, self._channels, self._movers, self._jobs.report, only
        )

    async def _serve_job(self, job: Job, folder: Path) -> grpc.aio.Server:
        known, asked = self._jobs.registered(job), partial(self.register.asked, job)
        forwarder = Forwarder(self._orchestrator, job, known, asked)
        names, request = [self._backend.name], job.request
        service = self._service(job.job_id)
        own = JobService(job, self._state, self._drains, self.register, self._movers)
        return await sockets.serve_job(folder, request.uid, request.gid, service, names, [forwarder], own)

    def _variables(self, job: Job) -> dict[str, str]:
        uuids = {device.index: device.uuid for device in self._backend.devices()}
        mine = [uuids[index] for index in job.request.devices if index in uuids]  # one may be lost since
        return environment.variables(job, self._config, self._sim, mine)


def _chains(orders: Iterable[pb.Operate]) -> list[list[pb.Operate]]:
    """Return *orders* in rows: what has to wait for the one before it anyway shares a task with it."""
    chains: list[list[pb.Operate]] = []
    for order in orders:
        if chains and list(order.after) == [chains[-1][-1].operation_id]:
            chains[-1].append(order)
        else:
            chains.append([order])
    return chains


def _done(order: pb.Operate, result: Result) -> pb.OperationDone:
    return pb.OperationDone(
        operation_id=order.operation_id,
        job_id=order.job_id,
        ok=result.outcome.ok,
        context=result.outcome.context.value,
        bytes=result.bytes,
        seconds=result.seconds,
        error=result.outcome.error,
    )
