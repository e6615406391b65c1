"""A snapshot and a restore of real processes, against the stub of the driver."""

from __future__ import annotations

import asyncio
import itertools
import os
from dataclasses import replace
from pathlib import Path

from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent.contexts import Outcome, Seen
from tests.cuda.conftest import Node
from tests.stub_driver.stub import CHECKPOINTED, MIB, RUNNING, Stub


async def test_a_job_comes_back_bit_by_bit(node: Node, stub: Stub) -> None:
    ranks = [stub.start("17", f"{device}:{device + 1}") for device in range(4)]
    before = [rank.ask("hash") for rank in ranks]

    saved = await node.save()
    on_device = [stub.on_device(rank.pid) for rank in ranks]
    back = await node.bring()

    assert (saved.context, saved.moved, saved.error) == (Context.SAVED, 10 * MIB, "")
    assert on_device == [0, 0, 0, 0]
    assert (back.context, back.moved, back.error) == (Context.RESIDENT, 10 * MIB, "")
    assert [rank.ask("hash") for rank in ranks] == before


async def test_a_process_waits_while_its_job_is_saved(node: Node, stub: Stub) -> None:
    rank = stub.start("17", "0:1")
    before = rank.ask("hash")
    await node.saved()

    rank.begin("hash")
    answer = asyncio.create_task(asyncio.to_thread(rank.end))
    await node.backend.recover(["17"])  # as much as an agent ever does, and no reason to go on
    assert not answer.done()
    await node.bring()

    assert await answer == before


async def test_all_processes_are_locked_before_the_first_is_saved(node: Node, stub: Stub) -> None:
    for device in range(4):
        stub.start("17", f"{device}:1")

    await node.saved()
    await node.bring()

    calls = stub.asked()
    assert max(c.ended_ms for c in calls if c.op == "lock") <= min(
        c.begun_ms for c in calls if c.op == "checkpoint"
    )
    assert max(c.ended_ms for c in calls if c.op == "restore") <= min(
        c.begun_ms for c in calls if c.op == "unlock"
    )


async def test_devices_are_copied_at_the_same_time(node: Node, stub: Stub) -> None:
    stub.set(speed=20 * MIB)
    for device in range(4):
        stub.start("17", f"{device}:4")

    await node.saved()

    copies = stub.asked("checkpoint")
    assert max(c.begun_ms for c in copies) < min(c.ended_ms for c in copies)


async def test_a_job_under_launch_job_is_saved_one_process_after_the_other(node: Node, stub: Stub) -> None:
    stub.set(speed=100 * MIB)
    for device in range(3):
        stub.start("17", f"{device}:4", CUDA_CHECKPOINT_JOB_FILE="/proc/self/fd/9")

    await node.saved()

    copies = sorted(stub.asked("checkpoint"), key=lambda call: call.begun_ms)
    assert all(one.ended_ms <= next_.begun_ms for one, next_ in itertools.pairwise(copies))


async def test_what_is_known_of_a_job_follows_it(node: Node, stub: Stub) -> None:
    assert node.backend.look("17") is None
    rank = stub.start("17", "0:2")

    await node.saved()
    saved = node.backend.look("17")
    await node.bring()
    back = node.backend.look("17")
    rank.kill()

    assert saved == Seen(Context.SAVED, 2 * MIB)
    assert back == Seen(Context.RESIDENT, 2 * MIB)
    assert node.backend.look("17") == Seen(Context.NONE)


async def test_a_job_without_anything_on_a_device_has_no_context(node: Node, stub: Stub) -> None:
    assert (await node.save()).context is Context.NONE


async def test_a_process_with_no_bytes_on_a_device_is_left_alone(node: Node, stub: Stub) -> None:
    rank, touched = stub.start("17", "0:2"), stub.start("17", "1:2")
    stub.nvml_says(touched.pid, "zero")

    await node.saved()

    assert (stub.state(rank.pid), stub.state(touched.pid)) == (CHECKPOINTED, RUNNING)
    assert not stub.asked("lock", touched.pid)


async def test_bytes_that_nvml_does_not_know_are_those_that_come_free(node: Node, stub: Stub) -> None:
    stub.set(nvml_bytes="none")
    stub.start("17", "0:2", "1:3")

    saved = await node.save()

    assert (saved.context, saved.moved, saved.error) == (Context.SAVED, 5 * MIB, "")


async def test_a_process_that_nvml_does_not_list_is_saved_too(node: Node, stub: Stub) -> None:
    rank = stub.start("17", "0:2")
    stub.nvml_says(rank.pid, "hidden")

    saved = await node.save()

    assert (saved.context, saved.moved, stub.state(rank.pid)) == (Context.SAVED, 2 * MIB, CHECKPOINTED)


async def test_a_process_may_map_a_file_of_any_name(node: Node, stub: Stub, tmp_path: Path) -> None:
    weights = tmp_path / "weights-\udcff"
    await asyncio.to_thread(weights.write_bytes, b"1")
    rank = stub.start("17", "0:2")
    assert rank.ask(f"map {os.fsencode(weights).hex()}") == "ok"
    stub.nvml_says(rank.pid, "hidden")

    saved = await node.save()

    assert (saved.context, stub.state(rank.pid)) == (Context.SAVED, CHECKPOINTED)


async def test_processes_of_other_jobs_and_of_other_users_do_not_count(node: Node, stub: Stub) -> None:
    mine, others = stub.start("17", "0:2"), stub.start("18", "0:2")
    stranger = stub.start("17", "1:2", STUB_UID="65534")

    await node.saved()

    assert stub.state(mine.pid) == CHECKPOINTED
    assert (stub.state(others.pid), stub.state(stranger.pid)) == (RUNNING, RUNNING)


async def test_a_process_born_while_the_others_are_locked_is_saved_with_them(node: Node, stub: Stub) -> None:
    first = stub.start("17", "0:2")
    stub.fault("lock", 0, pid=first.pid, delay_ms=1000)

    saving = asyncio.create_task(node.save())
    await asyncio.to_thread(stub.wait_until_asked, "lock", first.pid)
    second = await asyncio.to_thread(stub.start, "17", "1:2")
    saved = await saving

    assert (saved.context, saved.moved) == (Context.SAVED, 4 * MIB)
    assert stub.state(second.pid) == CHECKPOINTED


async def test_who_is_on_a_device_is_seen(node: Node, stub: Stub) -> None:
    rank, stranger, touched = (stub.start(job, "1:2") for job in ("17", "99", "18"))
    stub.nvml_says(touched.pid, "zero")
    await node.saved()
    other = stub.start("18", "2:1")

    await node.backend._sight.look()

    assert rank.pid not in {user.pid for user in node.backend.users()}
    assert {(user.device, user.pid) for user in node.backend.users()} == {(1, stranger.pid), (2, other.pid)}


async def test_what_a_living_job_has_saved_cannot_be_forgotten(node: Node, stub: Stub) -> None:
    rank = stub.start("17", "0:2")
    await node.saved()

    kept = await node.backend.discard(replace(node.target("17"), living=True))

    assert (kept.context, kept.ok) == (Context.SAVED, False)
    rank.kill()
    assert await node.backend.discard(replace(node.target("17"), living=True)) == Outcome(Context.NONE)


async def test_a_job_is_saved_again_and_again_by_the_same_few_helpers(node: Node, stub: Stub) -> None:
    ranks = [stub.start("17", f"{device % 4}:1") for device in range(8)]
    before = [rank.ask("hash") for rank in ranks]

    for _ in range(3):
        await node.saved()
        assert (await node.bring()).ok

    assert [rank.ask("hash") for rank in ranks] == before
    assert len(node.backend._helpers._idle) <= 9
