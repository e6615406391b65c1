"""What is measured. Times are microseconds unless the name says otherwise."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from members import Member

from slurm_interleave.sql.engine import open_engine

_SETTLE_S = 0.002
_RETRY_S = 0.01
Grant = tuple[Member, int, float]  # who, the lease's epoch, when
Call = Callable[[], Awaitable[Any]]


def empty_call(connection: Any) -> Call:
    """Return the call that does nothing."""
    check, request = health_pb2_grpc.HealthStub(connection).Check, health_pb2.HealthCheckRequest()
    return lambda: check(request)


async def timed(call: Call, times: int) -> list[float]:
    """Return how long each of *times* calls took, one after the other."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        await call()
        took.append((time.perf_counter() - began) * 1e6)
    return took


async def warm_acquires(member: Member, empty: Call, times: int) -> tuple[list[float], list[float]]:
    """Return how long empty calls and acquires take, by turns.

    The devices are free, and the job's state is on them.
    """
    calls, acquires = [], []
    for _ in range(times):
        calls += await timed(empty, 1)
        began = time.perf_counter()
        epoch = await member.acquire()
        acquires.append((time.perf_counter() - began) * 1e6)
        await member.yield_(epoch)
    return calls, acquires


class Turns:
    """Jobs of one group: one holds, all others wait, and who has yielded waits again."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members
        self._granted: asyncio.Queue[asyncio.Task[Grant]] = asyncio.Queue()
        self._holder, self._epoch = members[0], 0

    async def begin(self) -> None:
        """Let all ask."""
        for member in self._members:
            self._wait(member)
        await self._next()
        await asyncio.sleep(_SETTLE_S * len(self._members))

    async def handovers(self, times: int) -> list[float]:
        """Return the times from a yield to the return of the next job's acquire."""
        took = []
        for _ in range(times):
            holder, began = self._holder, time.perf_counter()
            yielded = holder.yield_(self._epoch)
            granted = await self._next()
            took.append((granted - began) * 1e6)
            await yielded
            self._wait(holder)
            await asyncio.sleep(0)
            await holder.settle()
        return took

    async def end(self) -> None:
        """Let all have their turn and go."""
        for _ in self._members[1:]:
            await self._holder.yield_(self._epoch)
            await self._next()
        await self._holder.yield_(self._epoch)

    def _wait(self, member: Member) -> None:
        asyncio.create_task(self._acquire(member)).add_done_callback(self._granted.put_nowait)

    async def _acquire(self, member: Member) -> Grant:
        epoch = await member.acquire()
        return member, epoch, time.perf_counter()

    async def _next(self) -> float:
        """Wait for the next grant; return when its acquire returned."""
        task = await self._granted.get()
        self._holder, self._epoch, granted = task.result()
        return granted


async def handovers(members: Sequence[Member], times: int) -> list[float]:
    """Return the handover times of a group that is idle before and after."""
    turns = Turns(members)
    await turns.begin()
    took = await turns.handovers(times)
    await turns.end()
    return took


async def rate(repeated: Sequence[Call], seconds: float) -> tuple[float, float]:
    """Return how often a second all of *repeated*, each again and again, are done; and how long that took."""
    count, until = itertools.count(), time.perf_counter() + seconds

    async def repeat(call: Call) -> None:
        while time.perf_counter() < until:
            await call()
            next(count)

    began = time.perf_counter()
    await asyncio.gather(*map(repeat, repeated))
    took = time.perf_counter() - began
    return next(count) / took, took


async def visits(members: Sequence[Member], times: int, apart_s: float) -> list[float]:
    """Return how long the acquires of jobs take that come one after the other and never wait for a holder.

    Each comes *apart_s* seconds after the last one has yielded.
    """
    took = []
    for member, _ in zip(itertools.cycle(members), range(times), strict=False):
        await asyncio.sleep(apart_s)
        began = time.perf_counter()
        epoch = await member.acquire()
        took.append((time.perf_counter() - began) * 1e6)
        await member.yield_(epoch)
    return took


def turn(member: Member) -> Call:
    """Return the call that takes the devices and gives them back."""

    async def take() -> None:
        await member.yield_(await member.acquire())

    return take


async def first_turn(member: Member) -> None:
    """Take a turn as a job does that rides out an outage."""
    while True:
        try:
            await turn(member)()
        except grpc.aio.AioRpcError:
            await asyncio.sleep(_RETRY_S)
        else:
            return


def commits(url: str, times: int) -> list[float]:
    """Return how long the durable update of one row takes, by the driver alone, in a table of its own."""
    engine = open_engine(url)
    took = []
    with engine.begin() as db:
        db.exec_driver_sql("CREATE TABLE bench_commit (n INTEGER)")
        db.exec_driver_sql("INSERT INTO bench_commit VALUES (0)")
    with engine.connect() as db:
        if engine.dialect.name != "sqlite":
            db = db.execution_options(isolation_level="AUTOCOMMIT")
        driver: Any = db.connection.driver_connection
        cursor = driver.cursor()
        for _ in range(times):
            began = time.perf_counter()
            cursor.execute("UPDATE bench_commit SET n = n + 1")
            took.append((time.perf_counter() - began) * 1e6)
    with engine.begin() as db:
        db.exec_driver_sql("DROP TABLE bench_commit")
    engine.dispose()
    return took
