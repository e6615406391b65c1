"""A trace in the simulator, and the same trace with real daemons and the sim backend, in scaled time."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from members import Member, channel
from snapshot_sim import scratch
from stand import Stand

from slurm_interleave.client.sim import SimDevice
from slurm_interleave.client.sim.arena import Arena
from slurm_interleave.client.sim.settings import MIB, SimConfig
from slurm_interleave.orchestrator.core.rules import Rules
from slurm_interleave.orchestrator.simulator.program import Acquire, Cost, Job, Place, Until
from slurm_interleave.orchestrator.simulator.workloads import MIXED, TRAINER, Workload, job_of
from slurm_interleave.orchestrator.simulator.world import World
from slurm_interleave.sql.admin import Database
from slurm_interleave.sql.slices import SliceFilter

_MIB = 16  # of each job's context
_MOVE_S = 0.25  # what it takes each way, by the speed that the device is given
_POLICY = "learned"


# Two asynchronous jobs, whose batches come at their own pace, and two synchronous ones that always wait.
TRACES = {"async": MIXED, "sync": (Workload("a", 250, 400), Workload("b", 450, 325))}


def trace(works: Sequence[Workload], scale: float, steps: int) -> list[Job]:
    """Return jobs that do what *works* say, *scale* times as fast."""
    place = {TRAINER: Place(("n0",))}
    fast = [
        replace(w, rollout_s=w.rollout_s / scale, train_s=w.train_s / scale, sync_s=w.sync_s / scale)
        for w in works
    ]
    return [
        job_of(w, str(n + 1), place, steps, cost=Cost(_MOVE_S, _MOVE_S), spread=0.05)
        for n, w in enumerate(fast)
    ]


def measured(folder: Path) -> Cost:
    """Return what moves took in the run whose database is in *folder*."""
    with Database(f"sqlite:///{folder}/pairing.db") as opened:
        turns = [turn for page in opened.slices(SliceFilter()) for turn in page]
    return Cost(
        statistics.median(turn.snapshot_s for turn in turns if turn.snapshot_s),
        statistics.median(turn.restore_s for turn in turns if turn.restore_s),
    )


def simulated_s(jobs: list[Job], cost: Cost) -> float:
    """Return how long the simulator says that *jobs* take, if each move costs that."""
    jobs = [replace(job, cost=cost) for job in jobs]
    return max(World(jobs, Rules(policy=_POLICY)).run().finished.values())


async def real_s(jobs: list[Job], folder: Path) -> float:
    """Return how long they take."""
    stand = Stand(folder, lambda name: f"sqlite:///{folder}/{name}.db")
    try:
        server = await stand.orchestrator("pairing", turns=f'policy = "{_POLICY}"')
        speed = _MIB / 1024 / _MOVE_S
        sim = f"devices = 1\nmemory_mib = {2 * _MIB}\nsnapshot_gib_s = {speed}\nrestore_gib_s = {speed}\n"
        _, tokens = await stand.agent(server, jobs=[job.name for job in jobs], backend="sim", sim=sim)
        config = SimConfig(stand.folder("n0") / "sim", 1, 2 * _MIB, speed, speed)
        arena = Arena.open(config.directory, config)
        members = [Member(channel(server.address), job.name, "pair", tokens[job.name]) for job in jobs]
        began = time.monotonic()
        await asyncio.gather(
            *(_play(job, member, arena, began) for job, member in zip(jobs, members, strict=True))
        )
        return time.monotonic() - began
    finally:
        stand.close()


async def _play(job: Job, member: Member, arena: Arena, began: float) -> None:
    """Do what *job* does, with a context on the device from its first turn on."""
    program, epoch = job.program(0.0), 0
    step = next(program)
    while True:
        if isinstance(step, Until):
            await asyncio.sleep(max(0.0, began + step.at - time.monotonic()))
        elif isinstance(step, Acquire):
            first, epoch = not epoch, await member.acquire()
            if first:
                await asyncio.to_thread(SimDevice(arena, 0, job.name).put, bytes(_MIB * MIB))
        else:
            await member.yield_(epoch)
        try:
            step = program.send(time.monotonic() - began)
        except StopIteration:
            return


def compared(scale: float = 100.0, steps: int = 10) -> dict[str, float]:
    """Return both times of each trace, and the ratio that is furthest from 1."""
    found: dict[str, float] = {}
    ratios = []
    for name, works in TRACES.items():
        jobs = trace(works, scale, steps)
        folder = Path(tempfile.mkdtemp(prefix="interleave-bench-", dir=scratch()))
        try:
            real = asyncio.run(real_s(jobs, folder))
            cost = measured(folder)
        finally:
            shutil.rmtree(folder)
        simulated = simulated_s(jobs, cost)
        found |= {f"simulated_{name}_s": simulated, f"real_{name}_s": real}
        found |= {f"real_{name}_snapshot_s": cost.snapshot_s, f"real_{name}_restore_s": cost.restore_s}
        ratios.append(simulated / real)
    return {**found, "simulated_over_real": max(ratios, key=lambda ratio: abs(ratio - 1))}


if __name__ == "__main__":
    print(compared())
