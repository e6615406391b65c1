"""The stream of a node agent: reports come up, orders go down."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

from slurm_interleave.client.connect import NODE_KEY, Call
from slurm_interleave.client.core.errors import BadArgument, BadName, Denied, InterleaveError, WrongState
from slurm_interleave.client.core.names import excerpt, parse_job_id
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc
from slurm_interleave.orchestrator.arbiter import Arbiter
from slurm_interleave.orchestrator.auth import Gate
from slurm_interleave.orchestrator.book import Reservations
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.links import Link, Links, reservation
from slurm_interleave.orchestrator.services.convert import Hello, operation_done, part_over, registration
from slurm_interleave.orchestrator.services.convert import hello as hello_of
from slurm_interleave.orchestrator.services.convert import uses as uses_of

log = logging.getLogger(__name__)
_HELLO_S = 0.001  # before each, which takes some milliseconds for a node with many jobs


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
        self._one_hello = asyncio.Lock()

    async def Connect(
        self, request_iterator: AsyncIterator[pb.AgentMessage], context: Any
    ) -> AsyncIterator[pb.AgentOrder]:
        """Serve one agent until its stream ends; what it says that cannot be ends it, with the reason."""
        metadata = dict(context.invocation_metadata())
        call = Call("AgentLink/Connect", node=metadata.get(NODE_KEY, ""))
        self._gate.require_operator(await self._gate.identify(metadata, call))
        first = await anext(aiter(request_iterator), pb.AgentMessage())
        async with self._one_hello:
            # After a restart all agents come at once: calls of jobs have their turns between them.
            await asyncio.sleep(_HELLO_S)
            hello = _greeting(first)
        if call.node not in ("", hello.node):
            raise Denied(f"the agent of node {call.node} may not speak for node {hello.node}")
        link = self._welcome(hello)
        self._links.open(link)
        reader = asyncio.create_task(self._read(link, request_iterator))
        reader.add_done_callback(lambda _: link.end())
        try:
            said = (hello.jobs, hello.memory, hello.trespass, hello.cancels)
            await self._arbiter.tell(ev.NodeUp(self._arbiter.now(), link.node, *said))
            log.info("agent.connected", extra={"node": link.node, "jobs": len(hello.jobs)})
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

    def _welcome(self, hello: Hello) -> Link:
        with _refusing(hello.node):
            if self._links.is_overtaken(hello.node, hello.sent, self._arbiter.now()):
                raise WrongState(f"node {hello.node}: a later hello of its agent has come before this one")
        devices = tuple(index for index, _ in hello.memory)
        link = Link(hello.node, devices, self._arbiter.now(), hello.host_bytes)
        known = [reservation(placement) for placement in self._reservations.on_node(hello.node)]
        welcome = pb.Welcome(cluster=self._cluster, reservations=known)
        link.send(pb.AgentOrder(welcome=welcome))
        return link

    async def _read(self, link: Link, messages: AsyncIterator[pb.AgentMessage]) -> None:
        async for message in messages:
            if link.ended:
                return  # what it says here is older than the newer stream's hello
            with _refusing(link.node):
                await self._take(link, message)

    async def _take(self, link: Link, message: pb.AgentMessage) -> None:
        now = self._arbiter.now()
        match message.WhichOneof("message"):
            case "hello":
                raise BadArgument("`hello` comes once, at the beginning of a stream")
            case "started":
                job = registration(message.started, link.node)
                await self._arbiter.tell(ev.Registered(now, link.node, job))
                registered = pb.Registered(job_id=job.job_id, attempt=job.attempt)
                link.send(pb.AgentOrder(registered=registered))
                log.info("job.registered", extra={"job": job.job_id, "group": job.group, "node": link.node})
            case "over":
                over = part_over(message.over, link.node, now)
                await self._arbiter.tell(over)
                log.info("job.over", extra={"job": over.job_id, "node": link.node})
            case "starting":
                await self._tell_devices(
                    link, parse_job_id(message.starting.job_id), message.starting.question
                )
            case "drained":
                self._drained(link, message.drained)
            case "uses":
                self._arbiter.post(ev.Used(now, link.node, uses_of(message.uses)))
            case _:
                # Nothing at all is what a later release says that this one does not know.
                self._arbiter.post(*[operation_done(done, link.node, now) for done in message.done])

    def _drained(self, link: Link, update: pb.DrainUpdate) -> None:
        """A job's processes are on disk, or go on: these get turns again, whoever has asked for the drain."""
        if not (update.ok or update.under_way):
            job_id = parse_job_id(update.job_id)
            self._arbiter.post(ev.Draining(self._arbiter.now(), job_id, link.node, False))
        self._links.drained(link.node, update)

    async def _tell_devices(self, link: Link, job_id: str, question: int) -> None:
        """Say which devices of its node a job gets that is about to start there."""
        placement = await self._reservations.sure_of(job_id, link.node)
        if placement is None:
            link.send(pb.AgentOrder(forget=pb.Forget(job_id=job_id, question=question)))
        else:
            answer = reservation(placement)
            answer.question = question
            link.send(pb.AgentOrder(reserve=answer))


def _greeting(first: pb.AgentMessage) -> Hello:
    with _refusing(first.hello.node):
        if first.WhichOneof("message") != "hello" or not first.hello.node:
            raise BadName("the first message of an agent's stream must be `hello` with the node's name")
        return hello_of(first.hello)


@contextlib.contextmanager
def _refusing(node: str) -> Iterator[None]:
    """Log why the stream of *node* ends."""
    try:
        yield
    except InterleaveError as error:
        log.warning("agent.refused", extra={"node": excerpt(node), "reason": str(error)})
        raise
