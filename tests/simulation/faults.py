"""What goes wrong, and when; and that it stops."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

from tests.simulation import machines
from tests.simulation.loop import Process
from tests.simulation.nodes import Node

if TYPE_CHECKING:
    from tests.simulation.runs import Run
    from tests.simulation.world import World

_JOBS = 9  # at once


class Faults:
    """Crashes, cuts, lost nodes, killed jobs: one at a time, but healed later than the next one comes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._process = Process(world.loop, "faults")
        dice = world.dice
        self._kinds = [
            (self._crash_orchestrator, dice.among([0.5, 2.0])),
            (self._replace_orchestrator, dice.among([0.0, 0.3])),
            (self._crash_agent, dice.among([0.5, 2.0])),
            (self._lose_node, dice.among([0.0, 0.2])),
            (self._cut, dice.among([0.5, 3.0])),
            (self._kill_client, dice.among([0.2, 1.0])),
            (self._cancel_job, dice.among([0.2, 1.0])),
            (self._late_yield, dice.among([0.0, 1.0])),
            (self._drain_node, dice.among([0.0, 0.5])),
        ]

    def begin(self) -> None:
        """Let things go wrong, and jobs come."""
        self._process.spawn(self._go_wrong(), "faults")
        self._process.spawn(self._submit(), "jobs")

    def stop(self) -> None:
        """No more of it: everything that is down comes up again."""
        world = self._world
        self._process.kill()
        world.dice.calm = True
        self._process = Process(world.loop, "healing")
        for node in world.nodes.values():
            node.up = True
            if node.agent is None:
                machines.start_agent(world, node)
        if not world.orchestrator[0].alive:
            machines.start_orchestrator(world)
        for run in list(world.slurm.runs.values()):
            if run.environment and not run.over and run.process is not None and not run.process.alive:
                world.slurm.start_client(run, run.environment)
            run.turns = min(run.turns, 4)

    async def _submit(self) -> None:
        world = self._world
        while True:
            room = _JOBS - len(world.slurm.runs)
            if room > 0:
                world.slurm.submit(world.dice.number(1, 30))
            await asyncio.sleep(world.dice.about(0.3 if room > _JOBS / 2 else 3.0))

    async def _go_wrong(self) -> None:
        world = self._world
        while True:
            await asyncio.sleep(world.dice.about(world.dice.gap))
            kind = world.dice.weighted([kind for kind, _ in self._kinds], [share for _, share in self._kinds])
            kind()
            self._restart_what_died()

    def _restart_what_died(self) -> None:
        """The service manager, for a crash that the dice of a transaction have thrown."""
        if not self._world.orchestrator[0].alive:
            self._process.spawn(self._start_orchestrator())

    def _crash_orchestrator(self) -> None:
        self._world.happens("fault", "orchestrator killed")
        self._world.orchestrator[0].kill()

    async def _start_orchestrator(self) -> None:
        world = self._world
        await asyncio.sleep(world.dice.about(1.0))
        if not world.orchestrator[0].alive:
            world.happens("fault", "orchestrator starts")
            machines.start_orchestrator(world)

    def _replace_orchestrator(self) -> None:
        """A second one takes over while the first still lives."""
        if self._world.orchestrator[0].alive:
            self._world.happens("fault", "orchestrator replaced")
            machines.start_orchestrator(self._world)

    def _crash_agent(self) -> None:
        node = self._world.dice.among(list(self._world.nodes.values()))
        self._world.happens("fault", "agent killed", node.name)
        if node.agent is not None:
            node.agent.kill()
        self._process.spawn(self._start_agent(node))

    async def _start_agent(self, node: Node) -> None:
        await asyncio.sleep(self._world.dice.about(self._world.dice.among([0.2, 2.0, 20.0])))
        if node.agent is None and node.up:
            self._world.happens("fault", "agent starts", node.name)
            machines.start_agent(self._world, node)

    def _lose_node(self) -> None:
        """The power of a node is cut: its processes and its memory are gone, and its jobs with it."""
        world = self._world
        node = world.dice.among(list(world.nodes.values()))
        world.happens("fault", "node lost", node.name)
        node.up = False
        if node.agent is not None:
            node.agent.kill()
        shutil.rmtree(node.folder, ignore_errors=True)
        for job, memory in list(node.memories.items()):
            memory.where = type(memory.where).NONE
            memory.alive = False
            run = world.slurm.runs.get(job)
            if run is not None and node.name in run.places:
                if run.process is not None and node.name == min(run.places):
                    run.process.kill()
                world.slurm.cancel(run)
        self._process.spawn(self._boot(node))

    async def _boot(self, node: Node) -> None:
        await asyncio.sleep(self._world.dice.about(10.0))
        node.up = True
        await self._start_agent(node)

    def _cut(self) -> None:
        """Connections break; what is under way on them is lost."""
        world = self._world
        calls = list(world.net.calls)
        world.happens("fault", "connections cut", len(calls))
        for call in calls:
            if world.dice.coin(0.3):
                call.lose()

    def _kill_client(self) -> None:
        """A job's process dies; its script starts it again, at once or later, or the job ends."""
        world = self._world
        alive = [run for run in world.slurm.runs.values() if run.process and run.process.alive]
        if not alive:
            return
        run = world.dice.among(alive)
        world.happens("fault", "client killed", run.job)
        assert run.process is not None
        run.process.kill()
        if world.dice.coin():
            world.slurm.cancel(run)
        elif not run.over and world.dice.coin():
            world.slurm.start_client(run, run.environment)
        elif not run.over:
            for name in run.places:
                world.nodes[name].client_ends(run.job)
            self._process.spawn(self._start_client(run))

    async def _start_client(self, run: Run) -> None:
        world = self._world
        await asyncio.sleep(world.dice.about(10.0))
        if not run.over and run.process is not None and not run.process.alive:
            world.slurm.start_client(run, run.environment)

    def _cancel_job(self) -> None:
        runs = [run for run in self._world.slurm.runs.values() if not run.over]
        if runs:
            run = self._world.dice.among(runs)
            self._world.happens("fault", "job cancelled", run.job)
            self._world.slurm.cancel(run)

    def _late_yield(self) -> None:
        self._world.yield_again()

    def _drain_node(self) -> None:
        self._world.saving.drain(self._world.dice.among(list(self._world.nodes)))
