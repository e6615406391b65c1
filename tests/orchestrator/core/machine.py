"""A system in which all happens in whatever order, and how it comes to rest."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from slurm_interleave.client.core.states import Context
from slurm_interleave.orchestrator.core.events import JobOver, Suspended
from slurm_interleave.sql.rows import Key
from tests.orchestrator.core.among import (
    acquirers,
    alive,
    among,
    away,
    busy,
    connected,
    dead,
    faulted,
    free_names,
    holders,
    starting,
    waiters,
    when,
)
from tests.orchestrator.core.model import Agent
from tests.orchestrator.core.system import Job, System

LONGER = int(os.environ.get("INTERLEAVE_TEST_EFFORT", "1"))
NODES = ("n1", "n2")
device_sets = st.sampled_from([(0,), (0,), (1,), (0, 1)])
places = st.dictionaries(st.sampled_from(NODES), device_sets, min_size=1, max_size=2)
outcomes = st.sampled_from(["well", "well", "well", "untouched", "lost"])
picks = st.integers(0, 11)


class Turns(RuleBasedStateMachine):
    """Jobs, agents and the orchestrator do as they like."""

    def __init__(self) -> None:
        super().__init__()
        self.system = System({node: Agent(node) for node in NODES})
        for agent in self.system.agents.values():
            self.system.connect(agent)

    @when(free_names)
    @rule(pick=picks, group=st.sampled_from("gh"), where=places, slowly=st.booleans(), uses=picks)
    def launch(self, pick: int, group: str, where: dict[str, Any], slowly: bool, uses: int) -> None:
        job_id = among(free_names(self.system), pick)
        self.system.launch(job_id, group, where, uses=uses > 0)
        if not slowly:
            self.start_all(self.system.jobs[job_id])

    def start_all(self, job: Job) -> None:
        for node in list(job.to_start):
            self.system.start_part(job, node)
            while self.system.agents[node].connected and self.system.agents[node].outbox:
                self.system.deliver(self.system.agents[node])

    @when(alive)
    @rule(pick=picks, where=places, deaf=st.booleans(), restart=st.booleans())
    def requeue(self, pick: int, where: dict[str, Any], deaf: bool, restart: bool) -> None:
        """Slurm puts a job back and starts it again, and no epilog was heard of."""
        job = among(alive(self.system), pick)
        self.system.kill(job)
        if deaf and connected(self.system):
            self.system.disconnect(among(connected(self.system), pick))
        self.system.launch(job.key.job_id, job.key.group, where, uses=True)
        again = self.system.jobs[job.key.job_id]
        self.start_all(again)
        if restart:
            self.restart(nodes_back=False)
        if self.system.may_acquire(again):
            self.system.acquire(again)

    @when(starting)
    @rule(pick=picks)
    def start_part(self, pick: int) -> None:
        job = among(starting(self.system), pick)
        self.system.start_part(job, among(job.to_start, pick))

    @when(acquirers)
    @rule(pick=picks)
    def acquire(self, pick: int) -> None:
        self.system.acquire(among(acquirers(self.system), pick))

    @when(acquirers)
    @rule()
    def all_acquire(self) -> None:
        for job in acquirers(self.system):
            self.system.acquire(job)

    @when(holders)
    @rule(pick=picks)
    def yield_(self, pick: int) -> None:
        self.system.yield_(among(holders(self.system), pick))

    @when(waiters)
    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        self.system.cancel(among(waiters(self.system), pick))

    @when(faulted)
    @rule(pick=picks, keep=st.booleans())
    def clear(self, pick: int, keep: bool) -> None:
        self.system.clear(among(faulted(self.system), pick), keep=keep)

    @when(alive)
    @rule(pick=picks)
    def cancel_moves(self, pick: int) -> None:
        self.system.cancel_moves(among(alive(self.system), pick))

    @when(waiters)
    @rule(pick=picks)
    def cut(self, pick: int) -> None:
        self.system.cut(among(waiters(self.system), pick))

    @when(alive)
    @rule(pick=picks)
    def kill(self, pick: int) -> None:
        self.system.kill(among(alive(self.system), pick))

    @when(alive)
    @rule(pick=picks, suspended=st.booleans())
    def suspend_or_resume(self, pick: int, suspended: bool) -> None:
        job = among(alive(self.system), pick)
        self.system.tell(Suspended(self.system.now, job.key.job_id, suspended))

    @when(dead)
    @rule(pick=picks)
    def end_part(self, pick: int) -> None:
        job = among(dead(self.system), pick)
        self.system.end_part(job, among(list(job.places), pick))

    @when(dead)
    @rule(pick=picks)
    def job_over(self, pick: int) -> None:
        job = among(dead(self.system), pick)
        self.system.tell(JobOver(self.system.now, job.key.job_id, self.system.now))

    @when(busy)
    @rule(picked=st.lists(st.tuples(picks, outcomes), min_size=1, max_size=12))
    def work(self, picked: list[tuple[int, str]]) -> None:
        for pick, outcome in picked:
            if agents := busy(self.system):
                self.work_once(among(agents, pick), pick, outcome)

    def work_once(self, agent: Agent, pick: int, outcome: str) -> None:
        if agent.inbox and pick % 3:
            agent.take(self.system.now)
        elif agent.runnable() and pick % 2:
            agent.advance(among(agent.runnable(), pick), outcome, self.system.now)
        elif agent.outbox and agent.connected:
            self.system.deliver(agent)

    @when(connected)
    @rule(pick=picks, crash=st.booleans())
    def disconnect(self, pick: int, crash: bool) -> None:
        self.system.disconnect(among(connected(self.system), pick), crash=crash)

    @when(away)
    @rule(pick=picks)
    def connect(self, pick: int) -> None:
        self.system.connect(among(away(self.system), pick))

    @rule(nodes_back=st.booleans())
    def restart(self, nodes_back: bool) -> None:
        self.system.restart()
        if nodes_back:
            for agent in self.system.agents.values():
                self.system.connect(agent)

    @when(holders)
    @rule(pick=picks)
    def crash_before_the_answer_to_a_yield(self, pick: int) -> None:
        self.system.yield_(among(holders(self.system), pick), crash=True)
        self.system.restart()

    @when(lambda system: system.timers)
    @rule(pick=picks)
    def fire(self, pick: int) -> None:
        self.system.fire(among(self.system.timers, pick))

    @rule()
    def settle(self) -> None:
        """Let all that is under way end well: whoever can be granted is."""
        settle(self.system)
        expect_nobody_left_behind(self.system)

    def teardown(self) -> None:
        finish(self.system)


def settle(system: System) -> None:
    """Bring agents up, callers and suspended jobs back, and let messages, orders and timers run out."""
    come_back(system)
    system.end_what_is_dead()
    for _ in range(1000):
        if not step(system):
            return
    raise AssertionError("it never comes to rest")


def come_back(system: System) -> None:
    for job_id in list(system.core.state.pauses.suspended):
        system.tell(Suspended(system.now, job_id, False))
    for job in acquirers(system):
        if job.lost:
            system.acquire(job)
    for agent in away(system):
        system.connect(agent)
    for job in starting(system):
        for node in list(job.to_start):
            system.start_part(job, node)


def step(system: System) -> bool:
    for agent in system.agents.values():
        if agent.outbox:
            system.deliver(agent)
        elif agent.inbox:
            agent.take(system.now)
        elif agent.runnable():
            agent.advance(agent.runnable()[0], "well", system.now)
        else:
            continue
        return True
    if system.timers:
        system.fire(min(system.timers, key=lambda wake: wake.at))
        return True
    return False


def expect_nobody_left_behind(system: System) -> None:
    """All is at rest: a waiter waits for a holder, an earlier waiter or a faulted job, or not at all."""
    state = system.core.state
    for waiter in sorted(state.waiters.values(), key=lambda waiter: waiter.seq):
        key = Key(waiter.job_id, waiter.group)
        mine = set(state.devices(key))
        others = {other: set(state.devices(other)) & mine for other in state.members if other != key}
        before = {k for k, w in state.waiters.items() if w.seq < waiter.seq}
        faulted = {k for k, member in state.members.items() if member.fault and is_there(system, k)}
        blocking = [k for k, meet in others.items() if meet and (k in state.leases or k in before | faulted)]
        assert blocking, f"{key} waits for nobody"


def is_there(system: System, key: Key) -> bool:
    parts = system.core.state.parts[key].values()
    return any(part.context not in (Context.NONE, Context.SAVED) for part in parts)


def finish(system: System) -> None:
    """Whoever holds yields, again and again: everybody has his turn who is not kept by a faulted job."""
    settle(system)
    expect_nobody_left_behind(system)
    for _ in range(20):
        for job in system.jobs.values():
            if job.epoch:
                system.yield_(job)
        settle(system)
        expect_nobody_left_behind(system)
    for job in system.jobs.values():
        if not job.killed:
            system.kill(job)
    settle(system)
    assert not system.core.state.members, "all jobs are over"
    assert system.memory.slices.keys() == system.memory.granted, "each lease has its slice"
    assert not system.memory.rows
