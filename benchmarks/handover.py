"""How long a turn takes to change hands, beside an empty gRPC call on the same machine: see README.md."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import measures
from databases import KINDS, LabError, database_of
from figures import Result, merged, reached, spread, table
from members import Channels, Job, Member, channel, fleet, nodes
from stand import Broken, Server, Stand
from stuck import Stuck

# What the policies of switches are measured with: a move of a context, and from a yield to the next acquire.
MOVE_S, APART_S = 0.01, 0.02
LEARNED_AFTER = 10  # acquires
WAITERS = 1000
QUEUES = {
    "queue": ("handover_1000_waiters_us", "fifo"),
    "priority": ("handover_1000_waiters_priority_us", "priority"),
    "fair_share": ("handover_1000_waiters_fair_share_us", "fair-share"),
    "least_switching": ("handover_1000_waiters_least_switching_us", "least-switching"),
}
POLICIES = {
    "eager_off": "",
    "eager_learned": 'eager = "learned"',
    "eager_always": 'eager = "always"',
    "co_resident": "co_resident = true",
}


@dataclass(frozen=True)
class Size:
    """How much is measured in a round."""

    calls: int = 800
    handovers: int = 250
    seconds: float = 3.0
    switches: int = 20


@dataclass
class Fleet:
    """An orchestrator whose nodes are played by this process."""

    server: Server
    channels: Channels
    jobs: list[Job]

    def member(self, job: Job) -> Member:
        """Return *job* as a caller."""
        return Member(self.channels.one(), job.job_id, job.group, job.token)

    def members(self, count: int) -> list[Member]:
        """Return the first jobs as callers."""
        return [self.member(job) for job in self.jobs[:count]]


class Bench:
    """All orchestrators of a run, up and with their members registered."""

    def __init__(self, stand: Stand, size: Size) -> None:
        self._stand, self._size = stand, size

    async def start(self, stack: contextlib.AsyncExitStack) -> None:
        """Start everything; *stack* ends what this process plays."""
        self._empty = channel((await self._stand.empty_server()).address)
        server = await self._stand.orchestrator("pair")
        _, tokens = await self._stand.agent(server)
        channels = Channels(server.address)
        self._pair = [Member(channels.one(), job, "pair", token) for job, token in tokens.items()]
        self._small = await self._fleet(stack, "small", groups=1, members=2)
        self._large = await self._fleet(stack, "large", groups=1000, members=10)
        self._queues = {key: await self._queue(stack, name, policy) for name, (key, policy) in QUEUES.items()}
        self._busy = await self._fleet(stack, "busy", groups=200, members=2)
        self._policies = {
            name: await self._fleet(stack, name, groups=1, members=2, turns=turns, move_s=MOVE_S)
            for name, turns in POLICIES.items()
        }
        self._stuck = Stuck(await self._stand.orchestrator("stuck"))
        await self._stuck.start(stack)

    async def _fleet(
        self,
        stack: contextlib.AsyncExitStack,
        name: str,
        groups: int,
        members: int,
        turns: str = "",
        move_s: float = 0.0,
    ) -> Fleet:
        server, jobs = await self._stand.orchestrator(name, turns=turns), fleet(groups, members)
        await stack.enter_async_context(nodes(server.address, jobs, members, move_s))
        return Fleet(server, Channels(server.address), jobs)

    async def _queue(self, stack: contextlib.AsyncExitStack, name: str, policy: str) -> measures.Turns:
        turns = f'policy = "{policy}"\nlinger_s = 0'
        fleet = await self._fleet(stack, name, groups=1, members=WAITERS + 1, turns=turns)
        queue = measures.Turns(fleet.members(WAITERS + 1))
        await queue.begin()
        return queue

    async def round(self) -> Result:
        """Measure everything once."""
        size = self._size
        empty = measures.empty_call(self._empty)
        calls, acquires = await measures.warm_acquires(self._pair[0], empty, size.calls)
        result: Result = {"rtt_us": spread(calls), "acquire_warm_us": spread(acquires)}
        result["rtt_alone_us"] = spread(await measures.timed(empty, size.calls))
        for key, members in (
            ("handover_us", self._pair),
            ("handover_small_us", self._small.members(2)),
            ("handover_1000_groups_us", self._large.members(2)),
        ):
            result[key] = spread(await measures.handovers(members, size.handovers))
        for key, queue in self._queues.items():
            result[key] = spread(await queue.handovers(size.handovers))
        result |= await self._throughput()
        for name, policy in self._policies.items():
            result |= await self._switches(name, policy.members(2))
        result |= await self._stuck.round(size.handovers)
        result["commit_us"] = spread(measures.commits(self._stand.database("small"), size.calls))
        result["rss_10000_members_mib"] = self._large.server.rss_mib()
        result["restart_1000_groups_s"] = await self._restart()
        return result

    async def _throughput(self) -> Result:
        busy, seconds = self._busy, self._size.seconds
        members = busy.members(len(busy.jobs))
        empty, _ = await measures.rate([measures.empty_call(busy.channels.one()) for _ in members], seconds)
        before = busy.server.cpu_s()
        handovers, took = await measures.rate([measures.turn(member) for member in members], seconds)
        used = busy.server.cpu_s() - before
        return {
            "empty_calls_per_s": empty,
            "handovers_per_s": handovers,
            "orchestrator_cpu_us_per_handover": used / (handovers * took) * 1e6,
        }

    async def _switches(self, name: str, members: list[Member]) -> Result:
        result: Result = {}
        for what, jobs in (("other", members), ("same", members[:1])):
            await measures.visits(jobs, LEARNED_AFTER, APART_S)  # it learns what is usual now
            took = await measures.visits(jobs, self._size.switches, APART_S)
            result[f"{what}_{name}_us"] = spread(took)
        return result

    async def _restart(self) -> float:
        large, loop = self._large, asyncio.get_running_loop()
        member = large.member(large.jobs[-1])
        await measures.first_turn(member)
        large.server.kill()
        began = loop.time()
        started = asyncio.create_task(self._stand.orchestrator("large", large.server.port))
        await measures.first_turn(member)
        took = loop.time() - began
        large.server = await started
        return took


async def run(rounds: int, size: Size, database: str) -> list[Result]:
    """Return the figures of each round."""
    with contextlib.ExitStack() as ending:
        folder = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="interleave-bench-")))
        stand = Stand(folder, database_of(database, folder, ending))
        try:
            async with contextlib.AsyncExitStack() as stack:
                bench = Bench(stand, size)
                await bench.start(stack)
                await bench.round()  # to warm up
                return [await bench.round() for _ in range(rounds)]
        finally:
            stand.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=5, help="each figure is the median of so many rounds")
    parser.add_argument("--quick", action="store_true", help="one short round, to see that all of it works")
    parser.add_argument(
        "--database",
        default="sqlite",
        help=f"{', '.join(KINDS)} (a file or a private server, in the folder for temporary files), or a "
        "SQLAlchemy URL with {} for the names of empty databases",
    )
    args = parser.parse_args(arguments)
    size, rounds = (Size(200, 50, 0.5, 8), 1) if args.quick else (Size(), args.rounds)
    try:
        results = asyncio.run(run(rounds, size, args.database))
    except (Broken, LabError) as error:
        sys.exit(f"handover: {error}")
    figures = merged(results)
    print(json.dumps(figures) if args.json else table(figures, reached(results)))


if __name__ == "__main__":
    main()
