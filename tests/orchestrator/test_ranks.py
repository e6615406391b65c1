"""The service where ranks meet: what it keeps of those who have gone."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from slurm_interleave.client.core.errors import JobEnded
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.orchestrator.services.ranks import RanksService

CONTEXT: Any = SimpleNamespace(invocation_metadata=lambda: ())


async def anybody(*_: object) -> None:
    return None


def serving(*jobs: str) -> tuple[RanksService, set[str]]:
    known = set(jobs)
    gate: Any = SimpleNamespace(identify=anybody, require_job=lambda *_: None)
    state: Any = SimpleNamespace(jobs=known)
    return RanksService(gate, state), known


async def begun(service: RanksService, job: str, rank: int) -> asyncio.Task[pb.MeetReply]:
    """Return when the rank waits, or is answered."""
    request = pb.MeetRequest(job_id=job, place="p", round=1, rank=rank, ranks=2)
    task = asyncio.create_task(service.Meet(request, CONTEXT))
    for _ in range(5):
        await asyncio.sleep(0)
    return task


def test_nothing_is_kept_to_wake_ranks_that_have_left_or_were_answered() -> None:
    async def meet() -> None:
        service, _ = serving("1", "2")
        gone = await begun(service, "1", 0)
        other = await begun(service, "2", 0)
        assert set(service._news) == {"1", "2"}

        gone.cancel()
        await asyncio.wait([gone])
        assert set(service._news) == {"2"}

        assert (await (await begun(service, "2", 1))).word == ""
        assert (await other).word == ""
        assert not service._news

    asyncio.run(meet())


def test_ranks_that_wait_while_their_job_ends_are_told_when_others_come() -> None:
    async def meet() -> None:
        service, jobs = serving("1", "2")
        waits = await begun(service, "1", 0)
        jobs.remove("1")

        other = await begun(service, "2", 0)
        with pytest.raises(JobEnded, match="job 1 ended"):
            await asyncio.wait_for(waits, 30)
        assert set(service._news) == {"2"}
        other.cancel()

    asyncio.run(meet())
