"""A core with jobs on one or two nodes, driven by short calls; agents answer when told to."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from slurm_interleave.client.core.states import Context
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.commands import (
    Command,
    Grant,
    Notice,
    Operate,
    Refuse,
    Verb,
    WakeMe,
)
from slurm_interleave.orchestrator.core.core import Core
from slurm_interleave.orchestrator.core.remembered import Remembered
from slurm_interleave.orchestrator.core.rules import Rules
from tests.orchestrator.core.indexes import expect_true_indexes


class Turns:
    """Keeps what the core commands; time is `now`, moved by hand."""

    def __init__(self, rules: Rules | None = None, devices: int = 8) -> None:
        self.core = Core(Remembered(0), 1, rules or Rules())
        self.look_every, self.events = 1, 0  # events, from one look at the indexes to the next
        self.now = 1000.0
        self.move_s = 0.1
        self.operations: list[Operate] = []
        self.wakes: list[ev.Wake | ev.HoldCheck] = []
        self.granted: list[tuple[str, str]] = []
        self.refused: dict[int, Exception] = {}
        self.notices: list[Notice] = []
        self._calls = itertools.count(1)
        self.handle(ev.NodeUp(self.now, "n1", (), tuple((i, 100) for i in range(devices))))

    def handle(self, event: ev.Event) -> Sequence[Command]:
        commands = self.core.handle(event)
        self.events += 1
        if self.events % self.look_every == 0:
            expect_true_indexes(self.core, self.now)
        for command in commands:
            match command:
                case Operate():
                    self.operations.append(command)
                case WakeMe():
                    self.wakes.append(command.wake)
                case Grant():
                    self.granted += [(one.job_id, one.group) for one in (command.lease, *command.also)]
                case Refuse():
                    self.refused.update(dict.fromkeys(command.calls, command.error))
                case Notice():
                    self.notices.append(command)
        return commands

    def join(
        self, job: str, group: str = "g", devices: tuple[int, ...] = (0,), node: str = "n1", **more: Any
    ) -> None:
        registration = ev.Registration(job, group, f"{job}-{group}", devices, **more)
        self.handle(ev.Registered(self.now, node, registration))

    def new_call(self) -> ev.CallId:
        return ev.CallId(next(self._calls))

    def acquire(self, job: str, *groups: str, independent: bool = False) -> int:
        call = self.new_call()
        first, *also = groups or ("g",)
        self.handle(ev.Acquire(self.now, job, first, "", call, tuple(also), independent))
        return call

    def call(self, job: str, name: str, *groups: str) -> None:
        """Acquire as a client does that gives its calls names."""
        first, *also = groups
        self.handle(ev.Acquire(self.now, job, first, "", self.new_call(), tuple(also), name=name))

    def yield_(self, job: str, group: str = "g", call: str = "", *, pause: bool = False) -> None:
        self.handle(ev.Yield(self.now, job, group, 0, call, pause))

    def settle(self, size: int = 0) -> None:
        """Let the agent carry out all orders well."""
        while self.operations:
            order = self.operations.pop(0)
            context = Context.SAVED if order.verb is Verb.SNAPSHOT else Context.RESIDENT
            done = ev.OperationDone(
                self.now, "n1", order.operation, order.job_id, True, context, size, self.move_s, ""
            )
            self.handle(done)

    def wake(self, until: float) -> None:
        """Move the time and send what the core asks to be woken for until then."""
        self.now = until
        while due := [wake for wake in self.wakes if wake.at <= until]:
            self.wakes = [wake for wake in self.wakes if wake.at > until]
            for wake in due:
                self.handle(wake)

    def holders(self) -> set[tuple[str, str]]:
        return {(key.job_id, key.group) for key in self.core.state.leases}


def jobs(rules: Rules, *names: str) -> Turns:
    """Return a bench where *names* have come, each of an account of its own; the first holds."""
    bench = Turns(rules)
    for name in names:
        bench.join(name, account=f"account-{name}")
    bench.acquire(names[0])
    return bench
