"""The stream of a node agent: reports come up, orders go down."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

from slurm_interleave.client.connect import NODE_KEY, Call
from slurm_interleave.client.core.errors import BadName, Denied, InterleaveError
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc
from slurm_interleave.orchestrator.arbiter import Arbiter
from slurm_interleave.orchestrator.auth import Gate
from slurm_interleave.orchestrator.book import Reservations
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.links import Link, Links, reservation
from slurm_interleave.orchestrator.services.convert import context as context_of
from slurm_interleave.orchestrator.services.convert import registration

log = logging.getLogger(__name__)


class AgentLinkService(rpc.AgentLinkServicer):
    """One stream a node. What an agent says is turned into events for the core."""

    def __init__(
        self, arbiter: Arbiter, gate: Gate, links: Links, reservations: Reservations, cluster: str
    ) -> None:
        self._arbiter = arbiter
        self._gate = gate
        self._links = links
        self._reservations = reservations
        self._cluster = cluster

    async def Connect(
        self, request_iterator: AsyncIterator[pb.AgentMessage], context: Any
    ) -> AsyncIterator[pb.AgentOrder]:
        """Serve one agent until its stream ends."""
        metadata = dict(context.invocation_metadata())
        call = Call("AgentLink/Connect", node=metadata.get(NODE_KEY, ""))
        self._gate.require_operator(await self._gate.identify(metadata, call))
        link, jobs = await self._greet(request_iterator)
        if call.node not in ("", link.node):
            raise Denied(f"the agent of node {call.node} may not speak for node {link.node}")
        self._links.open(link)
        reader = asyncio.create_task(self._read(link, request_iterator))
        reader.add_done_callback(lambda _: link.end())
        try:
            up = ev.NodeUp(self._arbiter.now(), link.node, jobs, link.memory, link.trespass)
            await self._arbiter.tell(up)
            log.info("agent.connected", extra={"node": link.node, "jobs": len(jobs)})
            while not link.ended:
                for order in await link.next():
                    yield order
            if reader.done():
                reader.result()
        finally:
            reader.cancel()
            if self._links.close(link):
                log.warning("agent.lost", extra={"node": link.node})
                self._arbiter.post(ev.NodeDown(self._arbiter.now(), link.node))

    async def _greet(
        self, messages: AsyncIterator[pb.AgentMessage]
    ) -> tuple[Link, tuple[ev.Registration, ...]]:
        first = await anext(aiter(messages), pb.AgentMessage())
        if first.WhichOneof("message") != "hello" or not first.hello.node:
            raise BadName("the first message of an agent's stream must be `hello` with the node's name")
        hello = first.hello
        devices = tuple(device.index for device in hello.devices)
        memory = tuple((device.index, device.memory_bytes) for device in hello.devices)
        link = Link(hello.node, devices, self._arbiter.now(), memory, hello.trespass)
        known = [reservation(placement) for placement in self._reservations.on_node(hello.node)]
        welcome = pb.Welcome(cluster=self._cluster, reservations=known)
        link.send(pb.AgentOrder(welcome=welcome))
        return link, tuple(registration(job) for job in hello.jobs)

    async def _read(self, link: Link, messages: AsyncIterator[pb.AgentMessage]) -> None:
        async for message in messages:
            if link.ended:
                return  # what it says here is older than the newer stream's hello
            try:
                await self._take(link, message)
            except InterleaveError as error:
                log.warning("agent.refused", extra={"node": link.node, "reason": str(error)})

    async def _take(self, link: Link, message: pb.AgentMessage) -> None:
        now = self._arbiter.now()
        match message.WhichOneof("message"):
            case "started":
                job = registration(message.started)
                await self._arbiter.tell(ev.Registered(now, link.node, job))
                registered = pb.Registered(job_id=job.job_id, attempt=job.attempt)
                link.send(pb.AgentOrder(registered=registered))
                log.info("job.registered", extra={"job": job.job_id, "group": job.group, "node": link.node})
            case "over":
                over = message.over
                await self._arbiter.tell(ev.PartOver(now, link.node, over.job_id, over.attempt))
                log.info("job.over", extra={"job": over.job_id, "node": link.node})
            case "drained":
                self._links.drained(link.node, message.drained)
            case "uses":
                uses = tuple(
                    ev.Use(use.device, use.pid, use.job_id, use.working) for use in message.uses.uses
                )
                self._arbiter.post(ev.Used(now, link.node, uses))
            case _:
                self._arbiter.post(*(_done(now, link.node, done) for done in message.done))


def _done(now: float, node: str, done: pb.OperationDone) -> ev.OperationDone:
    return ev.OperationDone(
        now,
        node,
        done.operation_id,
        done.job_id,
        done.ok,
        context_of(done.context),
        done.bytes,
        done.seconds,
        done.error,
    )
