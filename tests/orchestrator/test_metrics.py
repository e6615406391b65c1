from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.orchestrator.daemon import Orchestrator
from slurm_interleave.sql.rows import Key
from tests.metrics import scrape, scraped
from tests.orchestrator.fake_agent import FakeAgent
from tests.orchestrator.serving import Client, eventually, serving

_OURS, _THEIRS = {"group": "demo"}, {"group_id": "demo"}


@pytest.fixture
async def orchestrator(tmp_path: Path) -> AsyncIterator[Orchestrator]:
    async with serving(tmp_path, metrics="127.0.0.1:0", metrics_groups=2) as running:
        yield running


async def test_turns_are_counted_with_what_they_took(
    orchestrator: Orchestrator, n1: FakeAgent, client: Client
) -> None:
    first = await client.granted("a")
    await client.end("a", first.epoch)
    second = await client.granted("b")
    await client.end("b", second.epoch)

    told = await scraped(
        orchestrator.metrics_port, "interleave_leases_ended_total", 2, **_OURS, state="YIELDED"
    )

    assert told.value("interleave_grants_total", **_OURS, switched="no") == 1
    assert told.value("interleave_grants_total", **_OURS, switched="yes") == 1
    assert told.value("interleave_wait_seconds_count", **_OURS) == 2
    assert told.value("interleave_hold_seconds_count", **_OURS) == 2
    assert told.value("interleave_switch_seconds_count", **_OURS) == 1
    assert told.value("interleave_snapshot_seconds_count", **_OURS) == 1
    assert told.value("interleave_device_busy_seconds_total", **_OURS) > 0
    [switched] = [item for item in await client.slices() if item.switched]
    devices = len(switched.devices)
    ours_s = max(0.0, switched.switch_s - switched.snapshot_s - switched.restore_s)
    in_all, ours = (f"interleave_device_{name}_seconds_total" for name in ("switch", "overhead"))
    assert 0 < told.value(in_all, **_OURS) == pytest.approx(switched.switch_s * devices)
    assert told.value(ours, **_OURS) == pytest.approx(ours_s * devices)


async def test_how_far_expected_waits_were_from_those_that_came_is_measured(
    orchestrator: Orchestrator, n1: FakeAgent, client: Client
) -> None:
    for job in "ab":
        orchestrator.arbiter.core.habits.held(Key(job, "demo"), "", held_s=20, switch_s=3)
    await client.lock("a")
    call = client.acquire("b")
    assert (await call.read()).queued.expected_s > 10
    await client.unlock("a")
    while (await call.read()) is not grpc.aio.EOF:
        pass

    told = await scraped(
        orchestrator.metrics_port, "interleave_wait_error_seconds_count", 1, **_OURS, side="sooner"
    )

    assert 10 < told.value("interleave_wait_error_seconds_sum", **_OURS, side="sooner") < 23
    await client.end("b", orchestrator.arbiter.core.state.epoch)
    slices = {item.job_id: item for item in await client.slices()}
    assert not slices["a"].HasField("expected_s")
    assert 10 < slices["b"].expected_s < 23


async def test_dashboards_of_the_kubernetes_reference_find_its_metrics(
    orchestrator: Orchestrator, n1: FakeAgent, client: Client
) -> None:
    prefix = "timeslice_orchestrator"
    await client.lock("a")
    waiting = asyncio.ensure_future(client.lock("b"))
    await client.waiting(1)

    told = await scraped(orchestrator.metrics_port, f"{prefix}_queue_depth", 1, **_THEIRS)
    assert told.value(f"{prefix}_deferred_snapshots_total", **_THEIRS) == 0

    await client.unlock("a")
    await waiting
    await client.unlock("b")
    told = await scraped(orchestrator.metrics_port, f"{prefix}_deferred_snapshots_total", 1, **_THEIRS)
    assert told.value(f"{prefix}_queue_depth", **_THEIRS) == 0
    assert told.value(f"{prefix}_acquire_wait_duration_seconds_count", **_THEIRS) == 2
    moved = f"{prefix}_agent_operation_duration_seconds_count"
    assert told.value(moved, **_THEIRS, operation="snapshot") == 1


async def test_a_lease_is_counted_while_it_lasts(
    orchestrator: Orchestrator, n1: FakeAgent, client: Client
) -> None:
    await client.granted("a")
    await scraped(orchestrator.metrics_port, "interleave_grants_total", 1, **_OURS, switched="no")

    first = (await scrape(orchestrator.metrics_port)).value("interleave_device_busy_seconds_total", **_OURS)
    second = (await scrape(orchestrator.metrics_port)).value("interleave_device_busy_seconds_total", **_OURS)

    assert 0 < first < second


async def test_what_goes_wrong_is_counted_by_its_kind(
    orchestrator: Orchestrator, n1: FakeAgent, client: Client
) -> None:
    n1.answers = False
    await client.lock("a")
    await client.unlock("a")
    waiting = asyncio.ensure_future(client.lock("b"))
    await n1.done(await n1.next_order(), ok=False, context="faulted", error="the host died a little")

    told = await scraped(
        orchestrator.metrics_port, "interleave_faults_total", 1, **_OURS, kind="member.faulted"
    )

    assert told.value("interleave_faults_total", **_OURS, kind="switch.failed") == 1
    assert told.value("interleave_faulted_members", **_OURS) == 1
    waiting.cancel()


async def test_trespassers_are_counted_also_those_of_no_group(
    orchestrator: Orchestrator, n1: FakeAgent
) -> None:
    uses = pb.Use(device=0, pid=7, job_id="a", working=True), pb.Use(device=1, pid=8, working=True)
    await n1.sees(*uses)
    await n1.sees(*uses)

    told = await scraped(orchestrator.metrics_port, "interleave_trespasses_total", 1, group="")

    assert told.value("interleave_trespasses_total", **_OURS) == 1


async def test_what_alerts_are_about_begins_at_nothing(orchestrator: Orchestrator, n1: FakeAgent) -> None:
    told = await scrape(orchestrator.metrics_port)

    assert told.has("interleave_trespasses_total", **_OURS)
    assert told.has("interleave_trespasses_total", group="")
    assert told.has("interleave_faults_total", **_OURS, kind="switch.failed")
    assert told.has("interleave_device_busy_seconds_total", **_OURS)


async def test_there_is_a_bound_for_labels_and_no_label_for_jobs(
    orchestrator: Orchestrator, n1: FakeAgent, client: Client
) -> None:
    await scrape(orchestrator.metrics_port)  # group demo is named first
    for number, group in enumerate(("two", "three", "four")):
        await n1.start(f"job{number}", group, number + 1)
        await client.granted(f"job{number}", group)

    told = await scraped(
        orchestrator.metrics_port, "interleave_grants_total", 2, group="other", switched="no"
    )

    assert told.labels("group") == {"demo", "two", "other", ""}
    assert told.labels("group_id") == {"demo", "two", "other"}
    assert not any("job0" in map(str, sample) for sample in told.values)


async def test_a_group_that_is_over_makes_room_for_another(
    orchestrator: Orchestrator, n1: FakeAgent, client: Client
) -> None:
    await scrape(orchestrator.metrics_port)  # group demo is named first
    await n1.start("x", "short", 1)
    await client.granted("x", "short")
    await scraped(orchestrator.metrics_port, "interleave_grants_total", 1, group="short", switched="no")

    # What is counted late would name the group once more.
    await client.end("x", 0, "short")
    await scraped(
        orchestrator.metrics_port, "interleave_leases_ended_total", 1, group="short", state="YIELDED"
    )
    await n1.end("x")

    async def there_is_room() -> bool:
        # Made when Prometheus asks: a grant that is counted before is one of "other".
        return "short" not in (await scrape(orchestrator.metrics_port)).labels("group")

    await eventually(there_is_room)
    await n1.start("y", "next", 1)
    await client.granted("y", "next")

    told = await scraped(orchestrator.metrics_port, "interleave_grants_total", 1, group="next", switched="no")
    assert told.labels("group") == {"demo", "next", ""}
