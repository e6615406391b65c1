"""Over the wire: one process, with the token of its own component, takes turns for the others too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import grpc
import pytest
import pytest_asyncio

from slurm_interleave.client.connect import CALL_KEY, Metadata, token_metadata
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.orchestrator.daemon import Orchestrator
from slurm_interleave.orchestrator.members import RegisteredMembers
from slurm_interleave.orchestrator.placement.squeue import SlurmJob
from slurm_interleave.sql.rows import Key
from tests.orchestrator.fake_agent import FakeAgent
from tests.orchestrator.serving import Client

PART = SlurmJob("17", frozenset({"RUNNING"}), 1, "None", "", ("n1",), heterogeneous="17")
PARTS = [PART, replace(PART, job_id="18")]


@pytest_asyncio.fixture
async def n2(client: Client, n1: FakeAgent) -> AsyncIterator[FakeAgent]:
    """The samplers' node: of job 17+1, which is job 18, and of job 20, which nobody else drives."""
    agent = await FakeAgent(client.address, "n2").connect()
    await agent.start("18", "samplers", 1)
    await agent.start("20", "samplers", 1)
    yield agent
    await agent.close()


@pytest_asyncio.fixture
async def driver(n1: FakeAgent, n2: FakeAgent) -> Metadata:
    """Who calls: a process of job 17."""
    return token_metadata(await n1.start("17", "trainers", 1))


async def both(client: Client, who: Metadata) -> dict[str, int]:
    """Acquire both groups; return the epochs that are told."""
    request = pb.AcquireRequest(job_id="17", group="trainers", also=["samplers"])
    [*_, last] = [update async for update in client.ours.Acquire(request, metadata=who)]
    return {"trainers": last.granted.epoch, **{lease.group: lease.epoch for lease in last.granted.also}}


def holders(orchestrator: Orchestrator) -> set[Key]:
    return set(orchestrator.arbiter.core.state.leases)


async def test_both_are_acquired_and_each_is_yielded_by_the_token_of_one(
    orchestrator: Orchestrator, client: Client, driver: Metadata
) -> None:
    RegisteredMembers(orchestrator.arbiter).heard(PARTS)
    epochs = await both(client, driver)
    assert holders(orchestrator) == {Key("17", "trainers"), Key("18", "samplers")}

    await client.end("17", epochs["samplers"], "samplers", metadata=driver)
    assert holders(orchestrator) == {Key("17", "trainers")}
    await client.end("17", epochs["trainers"], "trainers", metadata=driver)
    assert holders(orchestrator) == set()


async def test_the_driver_hears_who_waits_for_another_component(
    orchestrator: Orchestrator, client: Client, driver: Metadata
) -> None:
    RegisteredMembers(orchestrator.arbiter).heard(PARTS)
    await both(client, driver)
    notices: Any = client.ours.Notices(pb.NoticesRequest(job_id="17", group="samplers"), metadata=driver)
    assert (await notices.read()).waiting == 0

    waiter = client.lock("20", "samplers")
    assert (await notices.read()).waiting == 1

    waiter.cancel()
    notices.cancel()


async def test_an_acquire_that_its_driver_gives_up_leaves_nothing_of_any_component(
    orchestrator: Orchestrator, client: Client, driver: Metadata
) -> None:
    RegisteredMembers(orchestrator.arbiter).heard(PARTS)
    named = (*driver, (CALL_KEY, "one"))
    await client.lock("17", "samplers", metadata=named)

    await client.unlock("17", "samplers", metadata=named)

    assert holders(orchestrator) == set()


async def test_the_lock_service_of_existing_integrations_drives_as_well(
    orchestrator: Orchestrator, client: Client, driver: Metadata
) -> None:
    RegisteredMembers(orchestrator.arbiter).heard(PARTS)
    for group in ("trainers", "samplers"):
        assert (await client.lock("17", group, metadata=driver)).success

    assert holders(orchestrator) == {Key("17", "trainers"), Key("18", "samplers")}


async def test_a_job_of_the_same_user_that_is_no_component_is_refused(
    orchestrator: Orchestrator, client: Client, driver: Metadata
) -> None:
    RegisteredMembers(orchestrator.arbiter).heard([replace(PART, heterogeneous=""), *PARTS[1:]])

    for call in (both(client, driver), client.end("17", 0, "samplers", metadata=driver)):
        with pytest.raises(grpc.aio.AioRpcError, match="job 17 is not registered in group samplers"):
            await call


async def test_the_token_is_for_calls_in_the_name_of_its_own_component(
    orchestrator: Orchestrator, client: Client, driver: Metadata
) -> None:
    RegisteredMembers(orchestrator.arbiter).heard(PARTS)

    with pytest.raises(grpc.aio.AioRpcError, match="job 18 is not yours"):
        await client.granted("18", "samplers", metadata=driver)
    assert holders(orchestrator) == set()
