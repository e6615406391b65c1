"""The production core under a virtual clock: jobs that run programs, agents that move contexts.

An agent begins a move when those that it comes after have ended, and takes as long as the job's context
costs. Messages take no time. The same jobs and rules give the same history.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from slurm_interleave.client.core.errors import JobFaulted
from slurm_interleave.client.core.states import Context
from slurm_interleave.orchestrator.core import commands as do
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.core import Core
from slurm_interleave.orchestrator.core.remembered import Remembered
from slurm_interleave.orchestrator.core.rules import Rules
from slurm_interleave.orchestrator.simulator.program import Acquire, Cost, Job, Program, Until, Yield

# The core takes the time 0 for "never"; recorded times may be negative.
START = 1e6


class Turn(NamedTuple):
    """A hold of a pool, in seconds since the start of the world."""

    job: str
    pool: str
    asked: float
    granted: float
    yielded: float
    switched: bool


@dataclass
class History:
    """What happened."""

    turns: list[Turn] = field(default_factory=list)
    finished: dict[str, float] = field(default_factory=dict)
    """When each job was done, in seconds since the start of the world."""
    moves: int = 0
    """Snapshots and restores."""
    events: int = 0


@dataclass
class _Run:
    """A job under way."""

    job: Job
    program: Program
    groups: dict[str, str]  # by pool
    costs: dict[str, Cost]  # by pool
    asked: dict[str, float] = field(default_factory=dict)
    held: dict[str, tuple[float, int, bool]] = field(default_factory=dict)  # since, epoch, switched


class World:
    """Jobs, agents and the core; `run` goes on until all jobs are done."""

    def __init__(self, jobs: Iterable[Job], rules: Rules) -> None:
        self._core = Core(Remembered(0), 1, rules)
        self._heap: list[tuple[float, int, ev.Event | Job | str]] = []
        self._numbers = itertools.count(1)
        self._runs: dict[str, _Run] = {}
        self._calls: dict[int, tuple[str, str]] = {}  # who waits: job and pool
        self._ends: dict[str, float] = {}  # of moves under way
        self.history = History()
        jobs = list(jobs)
        nodes = {node: None for job in jobs for place in job.pools.values() for node in place.nodes}
        for node in nodes:
            self._at(START, ev.NodeUp(START, node, ()))
        for job in jobs:
            self._at(START + job.start_s, job)

    def run(self) -> History:
        """Return what happened. Raises `JobFaulted` where a job waits for what never comes."""
        heap = self._heap
        while heap:
            now, _, what = heapq.heappop(heap)
            self.history.events += 1
            if isinstance(what, Job):
                self._begin(what, now)
            elif isinstance(what, str):
                self._step(self._runs[what], now)
            else:
                self._tell(what, now)
        if self._runs:
            stuck = ", ".join(sorted(self._runs)[:5])
            raise JobFaulted(f"the simulation came to a stop while these jobs wait for a turn: {stuck}")
        return self.history

    def _at(self, at: float, what: ev.Event | Job | str) -> None:
        heapq.heappush(self._heap, (at, next(self._numbers), what))

    def _begin(self, job: Job, now: float) -> None:
        groups = {pool: f"{pool}-{place.nodes[0]}-{place.devices[0]}" for pool, place in job.pools.items()}
        for pool, place in job.pools.items():
            for node in place.nodes:
                registration = ev.Registration(
                    job.name, groups[pool], f"{job.name}-{pool}", place.devices, nodes=place.nodes,
                    account=job.account, role=pool,
                )  # fmt: skip
                self._tell(ev.Registered(now, node, registration), now)
        run = _Run(job, job.program(now - START), groups, dict.fromkeys(job.pools, job.cost))
        self._runs[job.name] = run
        self._step(run, now, first=True)

    def _step(self, run: _Run, now: float, *, first: bool = False) -> None:
        """Let a job go on until it waits for something."""
        name = run.job.name
        while True:
            try:
                step = next(run.program) if first else run.program.send(now - START)
            except StopIteration:
                self._end(run, now)
                return
            first = False
            if isinstance(step, Until):
                if step.at + START > now:
                    self._at(step.at + START, name)
                    return
            elif isinstance(step, Acquire):
                call = next(self._numbers)
                self._calls[call] = (name, step.pool)
                run.asked[step.pool] = now
                ask = ev.Acquire(now, name, run.groups[step.pool], step.phase, ev.CallId(call), silent=True)
                self._tell(ask, now)
                return
            else:
                self._yield(run, step, now)

    def _yield(self, run: _Run, step: Yield, now: float) -> None:
        since, epoch, switched = run.held.pop(step.pool)
        if step.cost is not None:
            run.costs[step.pool] = step.cost
        turn = Turn(
            run.job.name, step.pool, run.asked.pop(step.pool) - START, since - START, now - START, switched
        )
        self.history.turns.append(turn)
        self._tell(ev.Yield(now, run.job.name, run.groups[step.pool], epoch), now)

    def _end(self, run: _Run, now: float) -> None:
        name = run.job.name
        del self._runs[name]
        self.history.finished[name] = now - START
        for pool, place in run.job.pools.items():
            for node in place.nodes:
                self._tell(ev.PartOver(now, node, name, f"{name}-{pool}"), now)

    def _tell(self, event: ev.Event, now: float) -> None:
        for command in self._core.handle(event):
            if isinstance(command, do.Grant):
                self._granted(command, now)
            elif isinstance(command, do.Operate):
                self._operate(command, now)
            elif isinstance(command, do.WakeMe):
                self._at(max(command.wake.at, now), command.wake)

    def _granted(self, grant: do.Grant, now: float) -> None:
        for call in grant.calls:
            name, pool = self._calls.pop(call)
            lease = grant.lease
            self._runs[name].held[pool] = (now, lease.epoch, lease.switched)
            self._at(now, name)

    def _operate(self, order: do.Operate, now: float) -> None:
        """Be the agent: move a context, and say so."""
        self.history.moves += 1
        run = self._runs.get(order.job_id)
        pool = order.attempt.removeprefix(f"{order.job_id}-")
        cost = run.costs[pool] if run is not None else Cost()
        saves = order.verb is do.Verb.SNAPSHOT
        seconds = cost.snapshot_s if saves else cost.restore_s
        end = max([now, *(self._ends[number] for number in order.after)]) + seconds
        self._ends[order.operation] = end
        context = Context.SAVED if saves else Context.RESIDENT
        done = ev.OperationDone(
            end, order.node, order.operation, order.job_id, True, context, 1, seconds, ""
        )  # fmt: skip
        self._at(end, done)
