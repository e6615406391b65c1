"""Whether device memory is free: after a snapshot, before a restore, before a snapshot is undone."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any, cast

import pytest

from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent.backends.cuda import census, sight
from tests.cuda.conftest import Node, four_ranks, runs_on
from tests.node_agent.fakes import eventually
from tests.stub_driver.stub import CHECKPOINTED, Stub


async def test_memory_that_comes_free_late_is_waited_for(node: Node, stub: Stub) -> None:
    four_ranks(stub)
    stub.set(free_lag_ms=400)
    start = time.time()

    saved = await node.save()

    assert (saved.context, saved.error) == (Context.SAVED, "")
    last = max(call.ended_ms for call in stub.asked("checkpoint"))
    assert start * 1000 <= last <= time.time() * 1000 - 400


async def test_memory_that_does_not_come_free_is_an_error_that_names_the_device(
    node: Node, stub: Stub
) -> None:
    ranks = four_ranks(stub)
    before = [rank.ask("hash") for rank in ranks]
    stub.set(free_lag_ms=-1)

    saved = await node.save()

    assert saved.context is Context.SAVED
    assert "memory_not_released: after 1 s 0 of 2097152 bytes of device 0 are free" in saved.error
    stub.set(free_lag_ms=0)
    assert (await node.bring()).ok
    assert await runs_on(stub, ranks, before)


async def test_a_forked_child_that_keeps_the_device_open_is_named(
    node: Node, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = tmp_path / "nvidia0"
    device.touch()
    monkeypatch.setattr(census, "_DEVICE_FILES", str(tmp_path / "nvidia"))
    ranks = [stub.start("17", "0:2"), stub.start("18", "0:2")]
    children = [int(rank.ask(f"fork {device}")) for rank in ranks]
    stub.set(free_lag_ms=-1)

    saved = await node.save()

    for child in children:
        os.kill(child, signal.SIGKILL)
    assert f"nvidia* is open in process {children[0]}, maybe forked" in saved.error


GONE: dict[int, int | None] = {}
LOOKS = {  # at one device of which 10 bytes are free at first: free bytes, and who is listed with how many
    "free at one look, and not at the next": ([(40, GONE), (20, GONE), (40, GONE), (40, GONE)]),
    "free, but the process is listed": ([(40, {1: 7}), (40, {1: None}), (40, GONE), (40, GONE)]),
    "a part of it free": ([(35, GONE), (38, GONE), (39, GONE), (39, GONE)]),
    "listed with nothing, beside others": ([(40, {1: 0, 2: 9}), (40, {1: 0})]),
}


@pytest.mark.parametrize("looks", LOOKS.values(), ids=LOOKS.keys())
async def test_memory_is_free_once_two_looks_say_so(looks: list[tuple[int, dict[int, int | None]]]) -> None:
    def device(free: int, listed: dict[int, int | None]) -> dict[str, Any]:
        row = {"index": 0, "uuid": "GPU-0", "name": "Stub GPU", "total": 64, "used": 64 - free, "load": 0}
        return {**row, "free": free, "processes": listed.items(), "working": []}

    class Helpers:
        def __init__(self) -> None:
            self.left = [*looks, (0, {1: 30})]

        async def ask(self, *_: Any) -> tuple[int, Any]:
            return 0, [device(*self.left.pop(0))]

    before, helpers = sight.parse([device(10, {1: 30})]), Helpers()

    error = await sight.Sight(cast("Any", helpers), before).wait_freed(before, {"GPU-0": 30}, {1}, 10)

    assert (error, len(helpers.left)) == ("", 1)


async def test_a_snapshot_is_not_undone_into_memory_that_others_have_taken(node: Node, stub: Stub) -> None:
    first, second = stub.start("17", "0:40"), stub.start("17", "1:4")
    stub.fault("checkpoint", 2, pid=second.pid, delay_ms=2000)
    saving = asyncio.create_task(node.save())

    async def is_saved() -> bool:
        return stub.state(first.pid) == CHECKPOINTED

    await eventually(is_saved)
    await asyncio.to_thread(stub.start, "18", "0:40")

    failed = await saving

    assert failed.context is Context.FAULTED
    assert "it cannot be brought back: no_room: device 0" in failed.error
    assert not stub.asked("restore")
    assert stub.state(first.pid) == CHECKPOINTED


async def test_a_restore_without_room_is_refused_before_it_reaches_the_driver(node: Node, stub: Stub) -> None:
    ranks = four_ranks(stub)
    before = [rank.ask("hash") for rank in ranks]
    await node.saved()
    other = stub.start("18", "0:61")

    refused = await node.bring()

    assert refused.context is Context.SAVED
    assert (
        "no_room: device 0 has 2097152 bytes free, 2097152 and 1048576 to spare are needed" in refused.error
    )
    assert f"process {other.pid}" in refused.error
    assert not stub.asked("restore")
    other.kill()
    assert (await node.bring()).ok
    assert await runs_on(stub, ranks, before)


async def test_a_restore_that_meets_no_memory_faults_the_job_and_frees_the_devices(
    node: Node, stub: Stub
) -> None:
    ranks = four_ranks(stub)
    await node.saved()
    stub.fault("restore", 2, pid=ranks[3].pid, delay_ms=300)

    back = await node.bring()

    assert back.context is Context.FAULTED
    assert "out of memory" in back.error
    assert {stub.state(rank.pid) for rank in ranks} == {CHECKPOINTED}
    assert len(stub.asked("restore", ranks[3].pid)) == 1


async def test_memory_of_a_process_that_the_driver_cannot_save_stops_the_snapshot(
    node: Node, stub: Stub
) -> None:
    rank = stub.start("17", "0:2")
    before = rank.ask("hash")
    child = int(rank.ask("fork"))
    (stub.folder / f"proc.{child}").write_text("0 0 0\n0 1048576\n")
    stub.fault("tid", 3, pid=child, count=-1)

    saved = await node.save()
    os.kill(child, signal.SIGKILL)

    assert saved.context is Context.RESIDENT
    assert f"process {child} has 1048576 bytes on the devices, but the driver cannot save it" in saved.error
    assert await runs_on(stub, [rank], [before])
