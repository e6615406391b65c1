"""Slurm: jobs start and end, prologs and epilogs run, or do not; and the jobs themselves."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy.util import greenlet_spawn

from slurm_interleave.orchestrator.placement.plan import Placement
from tests.simulation.clients import script_of
from tests.simulation.loop import Process
from tests.simulation.machines import DAYS_S, call_hook
from tests.simulation.nodes import DEVICES, Memory, Node
from tests.simulation.runs import Run

if TYPE_CHECKING:
    from tests.simulation.world import World

_TRIES = 4


class Slurm:
    """The controller, which does not die here, and the hooks on each node."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.runs: dict[str, Run] = {}
        self._ids = itertools.count(1)
        self.process = Process(world.loop, "slurm")

    def submit(self, turns: int, job: str = "", restarts: int = 0) -> None:
        """Start a job, or the next run of one, on devices by dice."""
        dice, up = self._world.dice, [node.name for node in self._world.nodes.values() if node.up]
        if not up:
            return
        count = dice.weighted([1, 2], [0.7, 0.3] if self._world.places else [0.3, 0.7])
        sets: list[tuple[int, ...]] = [(0,), (0,), (1,), (2,), (0, 1), (1, 2)]
        indices = dice.among(sets)
        names = sorted({dice.among(up) for _ in range(count)})
        assert max(indices) < DEVICES
        if self._world.places:
            groups = dict.fromkeys(names, dice.among(self._world.groups))
        else:  # who places nothing does not know a member's other nodes
            groups = dict(zip(names, dice.sample(self._world.groups), strict=False))
        job = job or str(next(self._ids))
        places = dict.fromkeys(groups, indices)
        run = Run(job, groups, places, dice.number(20, 90), turns, restarts, dice.coin())
        self.runs[job] = run
        self.process.spawn(self._life(run), f"job {job}")

    def is_over(self, job: str) -> bool:
        """Tell what squeue says."""
        run = self.runs.get(job)
        return run is None or run.over

    def cancel(self, run: Run) -> None:
        """End a job before its time."""
        self._world.observer.given_up(run.job)
        run.over = True
        run.over_at.set()

    def requeue(self, run: Run) -> None:
        """End a run, and start another one when it is over."""
        run.requeued = True
        self.cancel(run)

    async def _life(self, run: Run) -> None:
        world, dice = self._world, self._world.dice
        world.happens("job", run.job, run.groups, run.places, "starts")
        try:
            if world.places:
                await self._reserve(run)
            for node in run.places:
                world.nodes[node].memories[run.job] = Memory(run.job, run.places[node], run.size)
            started = await asyncio.gather(*(self._prolog(run, world.nodes[node]) for node in run.places))
            if all(started) and not run.over:
                first = min(run.places)
                self.start_client(run, started[sorted(run.places).index(first)])
                await run.over_at.wait()
        finally:
            run.over = True
            run.ended = DAYS_S + world.loop.time()
        await asyncio.sleep(dice.about(0.05))
        self._kill(run)
        world.happens("job", run.job, run.group, "", "over")
        await self._epilogs(run)

    def start_client(self, run: Run, environment: Mapping[str, str]) -> None:
        """Start the job's script, also again after it has died."""
        run.environment = dict(environment)
        process = run.process = Process(self._world.loop, f"client-{run.job}")
        run.pid = next(self._world.numbers)
        self._world.clients[run.pid] = process
        process.at_end[lambda: self._client_ended(run, process)] = None
        process.spawn(self._script(run), "script")

    def _client_ended(self, run: Run, process: Process) -> None:
        if run.process is process:
            self._world.observer.left(run.job)
            run.waits_since = None

    async def _script(self, run: Run) -> None:
        await greenlet_spawn(script_of(self._world, run).main)
        if not run.over:
            self.cancel(run)

    async def _reserve(self, run: Run) -> None:
        """What the placement helper does for a job before it starts."""
        row = Placement(
            run.job, run.group, "", tuple(sorted(run.places)), next(iter(run.places.values())), ""
        )
        for _ in range(200):
            process, one = self._world.orchestrator
            if process.alive:
                recorded = process.spawn(one.reservations.record(row))
                await asyncio.wait([recorded], timeout=5.0)
                if recorded.done() and process.alive:
                    one.links.reserve(row)
                    return
            await asyncio.sleep(0.5)

    async def _prolog(self, run: Run, node: Node) -> Mapping[str, str]:
        """Register the job on *node*; nothing is returned where that could not be."""
        world, dice = self._world, self._world.dice
        await asyncio.sleep(dice.about(0.1))
        devices = [] if world.places else list(run.places[node.name])
        for _ in range(_TRIES):
            if run.over:
                break
            if world.places and not self._may_start(node, run):
                await asyncio.sleep(dice.about(1.0))
                continue
            with contextlib.suppress(ConnectionError):
                reply = await call_hook(
                    world,
                    str(node.folder / "run" / "agent.sock"),
                    "job-start",
                    job=run.job,
                    group=run.groups[node.name],
                    devices=devices,
                    restarts=run.restarts,
                    uid=1000,
                    gid=1000,
                )
                if not dice.chance(0.1):  # else it is run once more
                    return _variables(Path(reply["environment"]))
            await asyncio.sleep(dice.about(1.0))
        return {}

    def _may_start(self, node: Node, run: Run) -> bool:
        """Tell whether what the agent knows of the job's place was not meant for a run that never started."""
        place = node.known and node.known.reservations.get(run.job)
        return (
            not place
            or bool(place.attempt)
            or (place.devices == run.places[node.name] and place.nodes == tuple(sorted(run.places)))
        )

    def _kill(self, run: Run) -> None:
        if run.process is not None:
            run.process.kill()
        for name in run.places:
            node = self._world.nodes[name]
            if run.job in node.memories:
                node.processes_end(run.job)

    async def _epilogs(self, run: Run) -> None:
        """On each node, and slurmctld's; any may be late, twice or missed."""
        world, dice = self._world, self._world.dice
        ends = [self._epilog(run, world.nodes[name]) for name in run.places]
        await asyncio.gather(*ends)
        late = dice.chance(0.2)  # it may run again by then
        if late:
            self.process.spawn(self._slurmctld_epilog(run, dice.about(5.0)))
        else:
            await self._slurmctld_epilog(run, dice.about(0.3))
        if world.places:
            await self._unreserve(run)
        del self.runs[run.job]
        if world.places and run.turns > 0 and (run.requeued or dice.chance(0.3)):
            self.submit(run.turns, run.job, run.restarts + 1)  # requeued, whoever has heard of its end

    async def _epilog(self, run: Run, node: Node) -> None:
        """Tell the agent, or do not."""
        dice = self._world.dice
        await asyncio.sleep(dice.about(0.2))
        if dice.chance(0.15):
            return
        for _ in range(1 + dice.chance(0.1)):
            with contextlib.suppress(ConnectionError):
                await call_hook(self._world, str(node.folder / "run" / "agent.sock"), "job-end", job=run.job)

    async def _slurmctld_epilog(self, run: Run, after_s: float) -> None:
        await asyncio.sleep(after_s)
        if self._world.dice.chance(0.3):
            return
        socket = "/run/interleave/interleaved.sock"
        with contextlib.suppress(ConnectionError):
            await call_hook(self._world, socket, "job-over", job=run.job, ended=run.ended)

    async def _unreserve(self, run: Run) -> None:
        for _ in range(1000):
            process, one = self._world.orchestrator
            if process.alive:
                dropped = process.spawn(one.reservations.drop(run.job))
                await asyncio.wait([dropped], timeout=5.0)
                if dropped.done() and process.alive:
                    one.links.forget(run.job)
                    return
            await asyncio.sleep(0.5)


def _variables(path: Path) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in path.read_text().splitlines())
