"""The agents that are connected now: one stream each, commands go down it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.orchestrator.core.commands import CancelOperation, Operate, Stop, Verb
from slurm_interleave.orchestrator.placement.plan import Node, Placement

log = logging.getLogger(__name__)
_VERBS = {
    Verb.SNAPSHOT: pb.Operate.SNAPSHOT,
    Verb.RESTORE: pb.Operate.RESTORE,
    Verb.DISCARD: pb.Operate.DISCARD,
}
# A node whose clock was set back is believed again after this.
_CLOCK_S = 60.0


@dataclass
class Link:
    """A connected agent: its node's devices, since when, and the orders that wait to be sent."""

    node: str
    devices: tuple[int, ...]
    since: float
    host_bytes: int = 0  # that saved state may take; 0: not said
    ended: bool = False
    _orders: list[pb.AgentOrder] = field(default_factory=list)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def send(self, order: pb.AgentOrder) -> None:
        """Queue *order*; operations that wait one behind the other go in one message."""
        if order.operate and self._orders and self._orders[-1].operate:
            self._orders[-1].operate.extend(order.operate)
        else:
            self._orders.append(order)
        self._news.set()

    def end(self) -> None:
        """The agent has closed the stream, or opened a newer one."""
        self.ended = True
        self._news.set()

    async def next(self) -> Sequence[pb.AgentOrder]:
        """Wait for orders, or the end, and return what there is to be sent."""
        await self._news.wait()
        self._news.clear()
        orders, self._orders = self._orders, []
        return orders


class Links:
    """All links, by node. An agent that connects again replaces its old stream."""

    def __init__(self) -> None:
        self._links: dict[str, Link] = {}
        self._drains: dict[tuple[str, str], asyncio.Future[pb.DrainUpdate]] = {}  # by node and job
        self._hellos: dict[str, tuple[float, float]] = {}  # of each node the last: when it was sent, and came
        self.changed = asyncio.Event()
        self.parent: Callable[[Operate], str] | None = None  # of an operation's span, where there are traces

    def is_overtaken(self, node: str, sent: float, now: float) -> bool:
        """Take note of a hello; tell whether a later one came before it, as from an agent killed since."""
        last, came = self._hellos.get(node, (0.0, now))
        if 0 < sent < last and now - came < _CLOCK_S:
            return True
        self._hellos[node] = sent, now
        return False

    def open(self, link: Link) -> None:
        """Make *link* the one of its node."""
        old = self._links.get(link.node)
        if old is not None:
            old.end()
            self._lose_drains(link.node)
        self._links[link.node] = link
        self.changed.set()

    def close(self, link: Link) -> bool:
        """Forget *link*; return False if a newer one has replaced it already."""
        if self._links.get(link.node) is not link:
            return False
        del self._links[link.node]
        self._lose_drains(link.node)
        self.changed.set()
        return True

    def _lose_drains(self, lost: str) -> None:
        for (node, job_id), answer in self._drains.items():
            if node == lost:
                text = f"the agent of node {node} went away"
                self._answer(answer, pb.DrainUpdate(job_id=job_id, error=text))

    def all(self) -> Iterable[Link]:
        """Return the connected agents."""
        return self._links.values()

    def send(self, node: str, order: pb.AgentOrder) -> None:
        """Queue *order* for *node*; nothing happens if its agent is away."""
        link = self._links.get(node)
        if link is not None:
            link.send(order)

    def operate(self, operation: Operate) -> None:
        """Send a snapshot, restore or discard."""
        order = pb.Operate(
            operation_id=operation.operation,
            verb=_VERBS[operation.verb],
            job_id=operation.job_id,
            attempt=operation.attempt,
            after=operation.after,
            beside=operation.beside,
            traceparent=self.parent(operation) if self.parent is not None else "",
        )
        self.send(operation.node, pb.AgentOrder(operate=[order]))

    def stop(self, stop: Stop | CancelOperation) -> None:
        """Have a trespasser killed, or an operation stopped and undone."""
        if isinstance(stop, CancelOperation):
            cancel = pb.Cancel(job_id=stop.job_id, operation_id=stop.operation)
            self.send(stop.node, pb.AgentOrder(cancel=cancel))
            return
        order = pb.Stop(job_id=stop.job_id, attempt=stop.attempt, pid=stop.pid)
        self.send(stop.node, pb.AgentOrder(stop=order))

    async def drain(self, node: str, job_id: str, attempt: str) -> pb.DrainUpdate:
        """Have a job's processes saved; return how it went. One at a time for a job."""
        if node not in self._links:
            return pb.DrainUpdate(job_id=job_id, error=f"the agent of node {node} is away")
        if (node, job_id) in self._drains:
            return pb.DrainUpdate(job_id=job_id, error="it is being saved already")
        answer: asyncio.Future[pb.DrainUpdate] = asyncio.get_running_loop().create_future()
        self._drains[node, job_id] = answer
        self.send(node, pb.AgentOrder(drain=pb.Drain(job_id=job_id, attempt=attempt)))
        try:
            return await answer
        finally:
            del self._drains[node, job_id]

    def drained(self, node: str, update: pb.DrainUpdate) -> None:
        """An agent says how it went."""
        if (answer := self._drains.get((node, update.job_id))) is not None:
            self._answer(answer, update)

    @staticmethod
    def _answer(answer: asyncio.Future[pb.DrainUpdate], update: pb.DrainUpdate) -> None:
        if not answer.done():
            answer.set_result(update)

    def nodes(self) -> list[Node]:
        """Return the nodes that placement may use."""
        return [Node(link.node, link.devices, link.host_bytes) for link in self._links.values()]

    def reserve(self, placement: Placement) -> None:
        """Tell the agents of *placement* which devices its job gets."""
        for node in placement.nodes:
            self.send(node, pb.AgentOrder(reserve=reservation(placement)))

    def forget(self, job_id: str) -> None:
        """Tell all agents that the job's reservation is void."""
        for link in self._links.values():
            link.send(pb.AgentOrder(forget=pb.Forget(job_id=job_id)))


def reservation(placement: Placement) -> pb.Reservation:
    """Return *placement* as an agent hears of it."""
    return pb.Reservation(
        job_id=placement.job_id,
        group=placement.group,
        role=placement.role,
        devices=placement.devices,
        lane=placement.lane,
        nodes=placement.nodes,
    )
