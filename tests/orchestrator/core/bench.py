"""Short words for the events of a test, and for what the core answers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, TypeVar

import pytest

from slurm_interleave.client.core.errors import InterleaveError
from slurm_interleave.client.core.states import Context, SliceState
from slurm_interleave.orchestrator.core import commands as cmd
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.core import Core
from slurm_interleave.sql import rows
from slurm_interleave.sql.rows import Key
from tests.orchestrator.core.indexes import expect_true_indexes
from tests.orchestrator.core.memory import Memory

Kind = TypeVar("Kind", bound=cmd.Command)
_MADE = {
    cmd.Verb.SNAPSHOT: Context.SAVED,
    cmd.Verb.RESTORE: Context.RESIDENT,
    cmd.Verb.DISCARD: Context.NONE,
}
GIB = 1 << 30
BOTH: dict[str, Any] = {"n1": (0,), "n2": (0,)}


class Bench:
    """A core with its memory. Nodes n1 and n2 are connected; jobs are in group g unless the test says so."""

    def __init__(self, *nodes: str) -> None:
        self.memory = Memory()
        self.at = 100.0
        self.instance = 1
        self.core = Core(self.memory.remembered(), self.instance)
        self._calls = itertools.count(1)
        for node in nodes or ("n1", "n2"):
            self.node_up(node)

    def tell(self, event: ev.Event) -> list[cmd.Command]:
        commands = self.core.handle(event)
        expect_true_indexes(self.core, self.at)
        self.memory.record(commands)
        return commands

    def node_up(self, node: str, *jobs: ev.Registration) -> list[cmd.Command]:
        return self.tell(ev.NodeUp(self.at, node, jobs))

    def node_down(self, node: str) -> list[cmd.Command]:
        return self.tell(ev.NodeDown(self.at, node))

    def start(self, job: str, group: str = "g", attempt: str = "1", **devices: Any) -> list[cmd.Command]:
        """Register *job* on each node of *devices*, as in `n1=(0, 1)`; without any: on device 0 of n1."""
        places = devices or {"n1": (0,)}
        out: list[cmd.Command] = []
        for node, indices in places.items():
            job_report = report(job, group, attempt, devices=indices, nodes=tuple(places))
            out += self.tell(ev.Registered(self.at, node, job_report))
        return out

    def acquire(
        self, job: str, group: str = "g", phase: str = "", name: str = "", *, silent: bool = False
    ) -> list[cmd.Command]:
        call = ev.CallId(next(self._calls))
        return self.tell(ev.Acquire(self.at, job, group, phase, call, name=name, silent=silent))

    def abandon(self, job: str, name: str) -> list[cmd.Command]:
        return self.tell(ev.Abandon(self.at, job, name))

    def cancel(self, call: int) -> list[cmd.Command]:
        return self.tell(ev.Cancel(self.at, ev.CallId(call)))

    def cancel_moves(self, job: str, group: str = "g") -> list[cmd.Command]:
        return self.tell(ev.CancelMoves(self.at, job, group))

    def yield_(self, job: str, epoch: int = 0, group: str = "g", call: str = "") -> list[cmd.Command]:
        return self.tell(ev.Yield(self.at, job, group, epoch, call))

    def done(self, order: cmd.Operate, **said: Any) -> list[cmd.Command]:
        """Let the agent end *order*; without more: well."""
        known: dict[str, Any] = {"ok": True, "context": _MADE[order.verb], "bytes": GIB, "seconds": 0.5}
        result = {"error": "", **known, **said}
        done = ev.OperationDone(self.at, order.node, order.operation, order.job_id, **result)
        return self.tell(done)

    def fails(self, order: cmd.Operate, error: str = "no memory", **said: Any) -> list[cmd.Command]:
        """Let the agent fail with *order* and change nothing."""
        untouched = Context.RESIDENT if order.verb is cmd.Verb.SNAPSHOT else Context.SAVED
        return self.done(order, **{"ok": False, "context": untouched, "error": error, **said})

    def fail_snapshots(self, commands: Iterable[cmd.Command]) -> list[cmd.Command]:
        """Let all snapshots of a switch fail and change nothing; restores end well."""
        out: list[cmd.Command] = []
        for order in of(cmd.Operate, commands):
            out += self.fails(order) if order.verb is cmd.Verb.SNAPSHOT else self.done(order)
        return out

    def part_over(self, job: str, node: str = "n1", attempt: str = "1") -> list[cmd.Command]:
        return self.tell(ev.PartOver(self.at, node, job, attempt))

    def job_over(self, job: str, ended: float | None = None) -> list[cmd.Command]:
        return self.tell(ev.JobOver(self.at, job, self.at if ended is None else ended))

    def wake(self, commands: Iterable[cmd.Command]) -> list[cmd.Command]:
        """Let the times that *commands* ask for come."""
        out: list[cmd.Command] = []
        for command in of(cmd.WakeMe, commands):
            self.at = max(self.at, command.wake.at)
            out += self.tell(command.wake)
        return out

    def restart(self) -> list[cmd.Command]:
        """Kill the orchestrator and start it from what is remembered."""
        self.instance += 1
        self.core = Core(self.memory.remembered(), self.instance)
        commands = self.core.start(self.at)
        self.memory.record(commands)
        return commands

    def turn(self, job: str, group: str = "g") -> None:
        """Let *job* hold its devices once, whatever is on them."""
        settle(self, self.acquire(job, group))
        self.yield_(job, 0, group)

    def context(self, job: str, node: str = "n1", group: str = "g") -> Context:
        return self.core.state.parts[Key(job, group)][node].context

    def holds(self, job: str, group: str = "g") -> bool:
        return Key(job, group) in self.core.state.leases

    def waits(self, job: str, group: str = "g") -> bool:
        return Key(job, group) in self.core.state.waiters

    def fault(self, job: str, group: str = "g") -> str:
        return self.core.state.members[Key(job, group)].fault

    def slices(self) -> list[tuple[str, SliceState]]:
        return [(ended.job_id, ended.state) for ended in self.memory.slices.values()]


@pytest.fixture
def bench() -> Bench:
    """Job a has held n1/0 and n2/0, where its context still is; b is on the same devices."""
    bench = Bench()
    bench.start("a", **BOTH)
    bench.start("b", **BOTH)
    bench.turn("a")
    return bench


def settle(bench: Bench, commands: Iterable[cmd.Command]) -> list[cmd.Command]:
    """Let all moves that *commands* order end well, and those that follow; return all commands."""
    out = list(commands)
    for order in of(cmd.Operate, out):
        out += settle(bench, bench.done(order))
    return out


def report(job: str, group: str = "g", attempt: str = "1", **more: Any) -> ev.Registration:
    token = f"token of {job} {attempt}"
    return ev.Registration(job, group, attempt, **{"devices": (0,), "token_sha256": token, **more})


def of(kind: type[Kind], commands: Iterable[cmd.Command]) -> list[Kind]:
    return [command for command in commands if isinstance(command, kind)]


def granted(commands: Iterable[cmd.Command]) -> list[str]:
    """Return the jobs that are granted."""
    return [grant.lease.job_id for grant in of(cmd.Grant, commands)]


def lease(commands: Iterable[cmd.Command]) -> rows.Lease:
    [grant] = of(cmd.Grant, commands)
    return grant.lease


def orders(commands: Iterable[cmd.Command]) -> list[tuple[str, str, str]]:
    """Return who is ordered to do what, as (verb, job, node)."""
    return [(order.verb.value, order.job_id, order.node) for order in of(cmd.Operate, commands)]


def refused(commands: Iterable[cmd.Command]) -> list[type[InterleaveError]]:
    return [type(refusal.error) for refusal in of(cmd.Refuse, commands)]


def places(commands: Iterable[cmd.Command]) -> list[tuple[set[int], int, str]]:
    return [(set(place.calls), place.ahead, place.reason) for place in of(cmd.Place, commands)]


def by_node(commands: Iterable[cmd.Operate]) -> dict[str, cmd.Operate]:
    return {order.node: order for order in commands}


def cancels(commands: Iterable[cmd.Command]) -> list[tuple[str, str, str]]:
    return [(one.node, one.job_id, one.operation) for one in of(cmd.CancelOperation, commands)]
