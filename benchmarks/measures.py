"""What is measured. Times are microseconds unless the name says otherwise."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc
import sqlalchemy as sa
from grpc_health.v1 import health_pb2, health_pb2_grpc
from members import Member

_SETTLE_S = 0.002
_RETRY_S = 0.01
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


async def warm_acquires(member: Member, times: int) -> list[float]:
    """Return how long an acquire takes when the devices are free and the job's state is on them."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        epoch = await member.acquire()
        took.append((time.perf_counter() - began) * 1e6)
        await member.yield_(epoch)
    return took


class Turns:
    """Jobs of one group: one holds, all others wait, and who has yielded waits again."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members
        self._grants: asyncio.Queue[tuple[Member, int, float]] = asyncio.Queue()
        self._waiting: set[asyncio.Task[None]] = set()

    async def handovers(self, times: int) -> list[float]:
        """Return the times from a yield to the return of the next job's acquire."""
        for member in self._members:
            self._wait(member)
        await asyncio.sleep(_SETTLE_S * len(self._members))
        holder, epoch, _ = await self._grants.get()
        took = []
        for _ in range(times):
            began = time.perf_counter()
            yielded = asyncio.create_task(holder.yield_(epoch))
            following, epoch, granted = await self._grants.get()
            took.append((granted - began) * 1e6)
            await yielded
            self._wait(holder)
            holder = following
            await asyncio.sleep(_SETTLE_S)
        await self._leave()
        await holder.yield_(epoch)
        return took

    def _wait(self, member: Member) -> None:
        task = asyncio.create_task(self._acquire(member))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _acquire(self, member: Member) -> None:
        epoch = await member.acquire()
        self._grants.put_nowait((member, epoch, time.perf_counter()))

    async def _leave(self) -> None:
        """Empty the queue."""
        waiting = list(self._waiting)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await asyncio.sleep(_SETTLE_S * len(waiting))


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
    """Return how long the durable update of one row takes in that database, in a table of its own."""
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    table = sa.Table("bench_commit", sa.MetaData(), sa.Column("n", sa.Integer))
    took = []
    with engine.connect() as db:
        if engine.dialect.name == "sqlite":
            db.exec_driver_sql("PRAGMA synchronous=FULL")
        table.create(db)
        db.execute(sa.insert(table).values(n=0))
        for _ in range(times):
            began = time.perf_counter()
            db.execute(sa.update(table).values(n=table.c.n + 1))
            took.append((time.perf_counter() - began) * 1e6)
        table.drop(db)
    engine.dispose()
    return took
