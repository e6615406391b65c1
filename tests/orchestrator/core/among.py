"""Whom of a system something can happen to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hypothesis.stateful import precondition

from tests.orchestrator.core.model import Agent
from tests.orchestrator.core.system import Job, System

T = TypeVar("T")
JOBS = "abcde"


def when(wanted: Callable[[System], Any]) -> Any:
    """A rule that can only be tried where *wanted* finds something."""
    return precondition(lambda machine: bool(wanted(machine.system)))


def acquirers(system: System) -> list[Job]:
    return [job for job in system.jobs.values() if system.may_acquire(job)]


def holders(system: System) -> list[Job]:
    return [job for job in system.jobs.values() if job.epoch]


def waiters(system: System) -> list[Job]:
    return [job for job in system.jobs.values() if job.call is not None]


def alive(system: System) -> list[Job]:
    return [job for job in system.jobs.values() if not job.killed]


def dead(system: System) -> list[Job]:
    return [job for job in system.jobs.values() if job.killed]


def faulted(system: System) -> list[Job]:
    members = system.core.state.members
    return [job for job in alive(system) if job.key in members and members[job.key].fault]


def starting(system: System) -> list[Job]:
    return [job for job in system.jobs.values() if job.to_start]


def busy(system: System) -> list[Agent]:
    return [a for a in system.agents.values() if (a.connected and a.outbox) or a.inbox or a.runnable()]


def connected(system: System) -> list[Agent]:
    return [agent for agent in system.agents.values() if agent.connected]


def away(system: System) -> list[Agent]:
    return [agent for agent in system.agents.values() if not agent.connected]


def free_names(system: System) -> list[str]:
    return [name for name in JOBS if system.may_launch(name)]


def among(things: Sequence[T], pick: int) -> T:
    return things[pick % len(things)]
