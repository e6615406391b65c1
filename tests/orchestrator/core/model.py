"""Nodes as they really are: what is on their devices, and agents that carry orders out, slowly or badly."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from slurm_interleave.client.core.states import Context
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.commands import Operate, Verb

ON_DEVICE = frozenset({Context.RESIDENT, Context.SAVING, Context.RESTORING, Context.FAULTED})
_DURING = {Verb.SNAPSHOT: Context.SAVING, Verb.RESTORE: Context.RESTORING}
_FROM = {Verb.SNAPSHOT: Context.RESIDENT, Verb.RESTORE: Context.SAVED}
_TO = {Verb.SNAPSHOT: Context.SAVED, Verb.RESTORE: Context.RESIDENT}
_BYTES = 7


class Violation(AssertionError):
    """Two contexts met on a device."""


@dataclass
class Local:
    """One job's attempt on one node: the truth."""

    job_id: str
    group: str
    attempt: str
    devices: tuple[int, ...]
    nodes: tuple[str, ...]
    context: Context = Context.NONE
    fault: str = ""
    dead: bool = False  # its processes have ended; its epilog is still to come
    restarts: int = 0
    started: float = 0.0


@dataclass
class Work:
    """An order that the agent has taken; *result* once it is done."""

    order: Operate
    begun: bool = False
    result: tuple[bool, Context, str] | None = None


@dataclass
class Agent:
    """A node and its agent. Messages wait in *outbox* and *inbox* until the test lets them through."""

    node: str
    connected: bool = False
    locals: dict[str, Local] = field(default_factory=dict)
    work: dict[str, Work] = field(default_factory=dict)
    outbox: deque[ev.NodeEvent] = field(default_factory=deque)
    inbox: deque[Operate] = field(default_factory=deque)

    def start(self, local: Local, at: float) -> None:
        """The prolog of a job."""
        if local.job_id in self.locals:
            self.end(local.job_id, at)
        self.locals[local.job_id] = local
        self.outbox.append(ev.Registered(at, self.node, registration(local)))

    def end(self, job_id: str, at: float) -> None:
        """The epilog: a move under way ends, the job is forgotten, queued orders find nothing."""
        local = self.locals.pop(job_id)
        orders = [work for work in self.work.values() if work.order.job_id == job_id and not work.result]
        for work in sorted(orders, key=lambda work: not work.begun):
            if not work.begun and ev.PartOver(at, self.node, job_id, local.attempt) not in self.outbox:
                self.outbox.append(ev.PartOver(at, self.node, job_id, local.attempt))
            gone = work.order.verb is Verb.RESTORE
            self._end_work(work, (not gone, Context.NONE, "not here" if gone else ""), at)
        if ev.PartOver(at, self.node, job_id, local.attempt) not in self.outbox:
            self.outbox.append(ev.PartOver(at, self.node, job_id, local.attempt))

    def hello(self, at: float) -> ev.NodeUp:
        """Connect: the truth of now; of what waited to be sent only results are worth sending."""
        self.connected = True
        self.outbox = deque(message for message in self.outbox if isinstance(message, ev.OperationDone))
        return ev.NodeUp(at, self.node, tuple(map(self._told, self.locals.values())))

    def lose_link(self) -> None:
        """The stream breaks: orders on their way are lost."""
        self.connected = False
        self.inbox.clear()

    def crash(self) -> None:
        """The agent is killed: moves under way did not happen, and nothing of them is remembered."""
        self.lose_link()
        self.outbox.clear()
        for work in self.work.values():
            local = self.locals.get(work.order.job_id)
            if work.begun and not work.result and local is not None and not local.dead:
                local.context = _FROM[work.order.verb]
        self.work.clear()

    def take(self, at: float) -> None:
        """Read the next order; one that is known already is answered again or still goes on."""
        order = self.inbox.popleft()
        work = self.work.get(order.operation)
        if work is None:
            self.work[order.operation] = Work(order)
        elif work.result is not None:
            self._say(work, at)

    def runnable(self) -> list[Work]:
        """Return the orders that can be begun or ended now."""
        busy = {work.order.job_id for work in self.work.values() if work.begun and not work.result}
        return [
            work
            for work in self.work.values()
            if not work.result
            and (work.begun or work.order.job_id not in busy)
            and all(self._over(number) for number in work.order.after)
        ]

    def advance(self, work: Work, outcome: str, at: float) -> None:
        """Begin *work*, or end it: `well`, `untouched` (it failed and changed nothing) or `lost`."""
        local, order = self.locals.get(work.order.job_id), work.order
        if local is None or local.dead or local.attempt != order.attempt:
            gone = order.verb is Verb.RESTORE
            self._end_work(work, (not gone, Context.NONE, "not here" if gone else ""), at)
        elif work.begun:
            self._finish(work, local, outcome, at)
        elif order.verb is Verb.DISCARD:
            self._discard(work, local, outcome, at)
        elif any(map(self._failed, order.after)):
            self._end_work(work, (False, local.context, "not begun"), at)
        elif local.context is Context.FAULTED:
            self._end_work(work, (False, Context.FAULTED, local.fault), at)
        elif local.context is not _FROM[order.verb]:
            self._end_work(work, (True, local.context, ""), at)
        else:
            self._begin(work, local)

    def _discard(self, work: Work, local: Local, outcome: str, at: float) -> None:
        if outcome == "well":
            local.context, local.fault = Context.NONE, ""
        self._end_work(work, (outcome == "well", local.context, "" if outcome == "well" else "at work"), at)

    def _begin(self, work: Work, local: Local) -> None:
        if work.order.verb is Verb.RESTORE:
            self.require_alone(local)
        work.begun, local.context = True, _DURING[work.order.verb]

    def _finish(self, work: Work, local: Local, outcome: str, at: float) -> None:
        verb = work.order.verb
        match outcome if local.context is not Context.NONE else "gone":
            case "well":
                local.context = _TO[verb]
                self._end_work(work, (True, local.context, ""), at)
            case "untouched":
                local.context = _FROM[verb]
                self._end_work(work, (False, local.context, "no memory"), at)
            case "gone":
                self._end_work(work, (verb is Verb.SNAPSHOT, Context.NONE, ""), at)
            case _:
                local.context, local.fault = Context.FAULTED, "the driver crashed"
                self._end_work(work, (False, local.context, local.fault), at)

    def require_alone(self, local: Local) -> None:
        """Raise `Violation` if another job has state on the devices of *local*."""
        for other in self.locals.values():
            meet = set(other.devices) & set(local.devices)
            if other is not local and meet and other.context in ON_DEVICE:
                raise Violation(f"{local.job_id} meets {other.job_id} ({other.context}) on {self.node}")

    def _over(self, number: str) -> bool:
        return number not in self.work or self.work[number].result is not None

    def _well(self, number: str) -> bool:
        # An order of an earlier life is not remembered; the orchestrator would not name one that failed.
        work = self.work.get(number)
        return work is None or (work.result is not None and work.result[0])

    def _failed(self, number: str) -> bool:
        return self._over(number) and not self._well(number)

    def _end_work(self, work: Work, result: tuple[bool, Context, str], at: float) -> None:
        work.result = result
        self._say(work, at)

    def _say(self, work: Work, at: float) -> None:
        if work.result is None:
            return
        ok, context, error = work.result
        order = work.order
        self.outbox.append(
            ev.OperationDone(at, self.node, order.operation, order.job_id, ok, context, _BYTES, 0.5, error)
        )

    def _told(self, local: Local) -> ev.Registration:
        """Return what a hello says; an order that waits its turn will move the context, so it is moving."""
        for work in self.work.values():
            waits = not work.result and not work.begun and not any(map(self._failed, work.order.after))
            if work.order.attempt == local.attempt and waits and work.order.verb in _DURING:
                return registration(local, _DURING[work.order.verb])
        return registration(local)


def registration(local: Local, context: Context | None = None) -> ev.Registration:
    """Return *local* as its agent reports it."""
    return ev.Registration(
        local.job_id,
        local.group,
        local.attempt,
        local.devices,
        nodes=local.nodes,
        context=context or local.context,
        bytes=_BYTES,
        fault=local.fault,
        token_sha256=local.attempt,
        restarts=local.restarts,
        started=local.started,
    )
