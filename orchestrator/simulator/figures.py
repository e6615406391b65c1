"""What a simulated history comes to, beside what no schedule can beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slurm_interleave.orchestrator.simulator.program import Alone, Job, alone
from slurm_interleave.orchestrator.simulator.world import History, Turn

Window = tuple[float, float]


@dataclass(frozen=True)
class PoolFigures:
    """One pool of devices that jobs share; parts of 1 unless said otherwise."""

    name: str
    devices: int
    duty: float
    """For which part of the window the devices were held."""
    bound: float
    """min(1, sum of b / P): more is not wanted, whatever the policy."""
    turns: int
    switches: int


@dataclass(frozen=True)
class Figures:
    """A history in numbers; seconds."""

    makespan_s: float
    """From the first grant to the last yield."""
    bound_s: float
    """The longest job alone, or the longest sum of all holds of a pool."""
    pools: tuple[PoolFigures, ...]
    slowdown: dict[str, float]
    """How much longer each job took than alone."""
    saved_device_s: float
    """Devices times time, if each job had its own, less what the shared ones took."""

    @property
    def duty(self) -> float:
        """Return the mean over devices."""
        devices = sum(pool.devices for pool in self.pools)
        return sum(pool.duty * pool.devices for pool in self.pools) / devices if devices else 0.0


def figures(jobs: Sequence[Job], history: History, *, warm_up: float = 0.1) -> Figures:
    """Return the figures of a history of *jobs*. Duty leaves out the first *warm_up* of the time."""
    single = {job.name: alone(job) for job in jobs}
    turns: dict[str, list[Turn]] = {}
    pool_of = {(job.name, pool): _named(job, pool) for job in jobs for pool in job.pools}
    for turn in history.turns:
        turns.setdefault(pool_of[turn.job, turn.pool], []).append(turn)
    members: dict[str, list[tuple[Job, str]]] = {}
    for job in jobs:
        for pool in job.pools:
            members.setdefault(pool_of[job.name, pool], []).append((job, pool))
    pools = [_pool(name, own, turns.get(name, []), single, warm_up) for name, own in members.items()]
    slowdown = {
        job.name: (history.finished[job.name] - job.start_s) / single[job.name].seconds
        for job in jobs
        if single[job.name].seconds
    }
    longest = max((job.start_s + single[job.name].seconds for job in jobs), default=0.0)
    loads = [sum(single[job.name].held_s[pool] for job, pool in own) for own in members.values()]
    begin = min((turn.granted for turn in history.turns), default=0.0)
    return Figures(
        makespan_s=max((turn.yielded for turn in history.turns), default=0.0) - begin,
        bound_s=max([longest - begin, *loads]),
        pools=tuple(pools),
        slowdown=slowdown,
        saved_device_s=sum(_saved(own, single, history) for own in members.values()),
    )


def duty(turns: Sequence[Turn], window: Window) -> float:
    """Return which part of *window* is covered by *turns* of one pool."""
    begin, end = window
    held = sum(max(0.0, min(turn.yielded, end) - max(turn.granted, begin)) for turn in turns)
    return held / (end - begin) if end > begin else 0.0


def together(turns: Sequence[Turn], *, warm_up: float = 0.0) -> Window:
    """Return the time in which each job of *turns* still has turns, less the first part."""
    last: dict[str, float] = {}
    for turn in turns:
        last[turn.job] = turn.yielded
    begin, end = min(turn.granted for turn in turns), min(last.values())
    return begin + warm_up * (end - begin), end


def _named(job: Job, pool: str) -> str:
    place = job.pools[pool]
    return f"{pool} {place.nodes[0]}/{place.devices[0]}"


def _pool(
    name: str,
    own: Sequence[tuple[Job, str]],
    turns: Sequence[Turn],
    single: dict[str, Alone],
    warm_up: float,
) -> PoolFigures:
    job, pool = own[0]
    return PoolFigures(
        name,
        _devices(job, pool),
        duty(turns, together(turns, warm_up=warm_up)) if turns else 0.0,
        min(1.0, sum(single[job.name].share(pool) for job, pool in own)),
        len(turns),
        sum(turn.switched for turn in turns),
    )


def _devices(job: Job, pool: str) -> int:
    place = job.pools[pool]
    return len(place.nodes) * len(place.devices)


def _saved(own: Sequence[tuple[Job, str]], single: dict[str, Alone], history: History) -> float:
    """Return what the jobs of a pool would have taken alone, less how long somebody had it."""
    spans = sorted((job.start_s, history.finished[job.name]) for job, _ in own)
    taken, end = 0.0, float("-inf")
    for begin, finished in spans:
        taken += max(0.0, finished - max(begin, end))
        end = max(end, finished)
    return _devices(*own[0]) * (sum(single[job.name].seconds for job, _ in own) - taken)
