"""What a job asks of the agent for itself costs the node no more than one job may."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slurm_interleave.client.core.errors import WrongState
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.node_agent import idleness
from slurm_interleave.node_agent.job_service import JobService
from slurm_interleave.node_agent.state import Job, Request, State


class Looks:
    """The backend and the movers of a job whose devices are always idle; counts looks at the same time."""

    def __init__(self) -> None:
        self.backend, self.of = SimpleNamespace(name="cuda", pauses=True, idle=self.idle), lambda _: None
        self.now = self.most = 0
        self.looked, self.may_look = asyncio.Event(), asyncio.Event()

    async def idle(self, *_: object) -> bool:
        self.now += 1
        self.most = max(self.most, self.now)
        self.looked.set()
        await self.may_look.wait()
        self.now -= 1
        return True


def service_of(folder: Path, looks: Looks) -> JobService:
    job = Job(Request("17", "demo", "", (0,), 0, 0), "a", "token")
    unused: Any = None
    movers: Any = looks
    return JobService(job, State(folder / "state"), unused, unused, movers)


async def test_who_watches_last_takes_the_place_of_those_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idleness, "_EVERY_S", 0.0)
    looks = Looks()
    service = service_of(tmp_path, looks)
    streams = [service.WatchIdle(pb.WatchIdleRequest(), None) for _ in range(20)]
    firsts = [asyncio.ensure_future(anext(stream)) for stream in streams]
    await looks.looked.wait()

    looks.may_look.set()
    answers = await asyncio.gather(*firsts, return_exceptions=True)

    ended = [answer for answer in answers if isinstance(answer, WrongState)]
    assert looks.most == 1
    assert len(ended) == len(streams) - 2, "all but the one that looked already and the last"
    assert "give --idle-yield to one" in str(ended[0])
    with pytest.raises(WrongState):
        await anext(streams[0])
    assert (await anext(streams[-1])).idle_s >= 0


async def test_a_watcher_that_is_gone_keeps_nobody_off(tmp_path: Path) -> None:
    looks = Looks()
    service = service_of(tmp_path, looks)
    gone = asyncio.ensure_future(anext(service.WatchIdle(pb.WatchIdleRequest(), None)))
    await looks.looked.wait()
    gone.cancel()
    looks.may_look.set()

    assert (await anext(service.WatchIdle(pb.WatchIdleRequest(), None))).idle_s >= 0
