"""Nodes as they are: what is on their devices, whatever anybody believes. And a backend that moves it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent.backends.protocol import Backend, Device, Target
from slurm_interleave.node_agent.contexts import Outcome, Seen
from slurm_interleave.node_agent.state import State
from tests.simulation.dice import Dice
from tests.simulation.loop import PROCESS, Process

if TYPE_CHECKING:
    from slurm_interleave.node_agent.agent import Agent
    from tests.simulation.observer import Observer

DEVICES = 3
MEMORY = 100
_ON_DEVICE = frozenset({Context.RESIDENT, Context.SAVING, Context.RESTORING, Context.FAULTED})


@dataclass
class Memory:
    """The device state of one run of a job on one node: the truth."""

    job: str
    devices: tuple[int, ...]
    size: int  # on each device
    where: Context = Context.NONE
    before: Context = Context.NONE  # while it moves
    alive: bool = True


@dataclass
class Node:
    """One node; its folder is emptied when it is booted again."""

    name: str
    folder: Path
    observer: Observer
    beside: bool  # contexts that fit may be on a device together
    up: bool = True
    agent: Process | None = None
    known: State | None = None  # to the last agent
    served: Agent | None = None  # the last one
    memories: dict[str, Memory] = field(default_factory=dict)

    def use(self, job: str) -> None:
        """A job's processes work on their devices: their state is there from now on."""
        memory = self.memories[job]
        if memory.where not in (Context.NONE, Context.RESIDENT):
            self.observer.violated(f"job {job} works on {self.name} while its state is {memory.where.value}")
        self.arrive(memory, Context.RESIDENT)

    def arrive(self, memory: Memory, where: Context) -> None:
        """Put state on devices, where there must be room."""
        others = [m for m in self.memories.values() if m is not memory and m.where in _ON_DEVICE]
        for device in memory.devices:
            there = [m for m in others if device in m.devices]
            taken = sum(m.size for m in there)
            if there and not (self.beside and taken + memory.size <= MEMORY):
                names = ", ".join(f"job {m.job} ({m.where.value})" for m in there)
                self.observer.violated(f"job {memory.job} meets {names} on {self.name}/{device}")
        memory.where = where

    def processes_end(self, job: str) -> None:
        """The driver frees what dead processes had."""
        memory = self.memories[job]
        memory.alive = False
        if memory.where not in (Context.SAVING, Context.RESTORING):
            memory.where = Context.NONE

    def client_ends(self, job: str) -> None:
        """The process is gone that had the job's device state; its script lives on."""
        memory = self.memories[job]
        if memory.where is Context.RESIDENT:
            memory.where = Context.NONE

    def agent_ends(self) -> None:
        """Moves that were under way have not happened."""
        self.agent = None
        for memory in self.memories.values():
            if memory.where in (Context.SAVING, Context.RESTORING):
                memory.where = memory.before if memory.alive else Context.NONE


class WorldBackend(Backend):
    """Moves state in the world, as slowly and as badly as the dice say."""

    name: ClassVar[str] = "sim"
    in_app: ClassVar[bool] = False
    in_process: ClassVar[bool] = True

    def __init__(self, node: Node, dice: Dice, happens: Callable[..., None], *, blind: bool) -> None:
        self._node, self._dice, self._happens, self._blind = node, dice, happens, blind

    def devices(self) -> list[Device]:
        return [Device(i, f"SIM-{self._node.name}-{i}", self.name, MEMORY) for i in range(DEVICES)]

    def look(self, job: str) -> Seen | None:
        memory = self._node.memories.get(job)
        if self._blind:
            return None
        if memory is None or memory.where is Context.NONE:
            return Seen(Context.NONE)
        # No backend can see that the state is broken.
        where = Context.RESIDENT if memory.where is Context.FAULTED else memory.where
        return Seen(where, memory.size * len(memory.devices))

    async def recover(self, _: Sequence[str]) -> None:
        """Do nothing: `Node.agent_ends` has."""

    async def snapshot(self, target: Target) -> Outcome:
        return await self._move(target, Context.RESIDENT, Context.SAVING, Context.SAVED)

    async def restore(self, target: Target) -> Outcome:
        return await self._move(target, Context.SAVED, Context.RESTORING, Context.RESIDENT)

    async def discard(self, target: Target) -> Outcome:
        await asyncio.sleep(self._dice.between(0.001, 0.1))
        memory = self._node.memories.get(target.job)
        if memory is not None and memory.alive and self._dice.chance(self._dice.fails):
            return Outcome(memory.where, error="the driver does not answer")
        if memory is not None:
            memory.where = Context.NONE
        return Outcome(Context.NONE)

    async def _move(self, target: Target, start: Context, during: Context, end: Context) -> Outcome:
        dice, memory = self._dice, self._node.memories[target.job]
        agent = PROCESS.get()
        if memory.where is not start or (agent is not None and not agent.alive):  # what is dead moves nothing
            return Outcome(memory.where)
        memory.before = start
        if during is Context.RESTORING:
            self._node.arrive(memory, during)
        memory.where = during
        stuck = dice.chance(dice.loses / 4)
        self._happens("move", self._node.name, target.job, during.value)
        try:
            await asyncio.sleep(1e4 if stuck else dice.about(0.2))
        except asyncio.CancelledError:
            memory.where = Context.FAULTED if memory.alive else Context.NONE
            raise
        return self._ended(target, memory, end)

    def _ended(self, target: Target, memory: Memory, end: Context) -> Outcome:
        dice = self._dice
        size = memory.size * len(memory.devices)
        if not memory.alive:
            memory.where = Context.NONE
            outcome = Outcome(Context.NONE)
        elif target.stop.is_set() or dice.chance(dice.fails):
            memory.where = memory.before
            outcome = Outcome(memory.where, error="no memory")
        elif dice.chance(dice.loses):
            memory.where = Context.FAULTED
            outcome = Outcome(Context.FAULTED, error="the driver crashed")
        else:
            memory.where = end
            outcome = Outcome(end, size)
        self._happens("moved", self._node.name, target.job, outcome.context.value, outcome.error)
        if outcome.error and memory.where is memory.before and dice.chance(0.2):
            raise RuntimeError(outcome.error)
        return outcome
