"""Custom storage (driver 615): helpers copy device memory to files of ours, and the driver keeps nothing."""

from __future__ import annotations

import asyncio
import json
import mmap
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent.backends.cuda.store import Store
from slurm_interleave.node_agent.backends.protocol import Charge
from tests.cuda.conftest import CONFIG, Node
from tests.stub_driver.stub import CHECKPOINTED, CHECKPOINTING, MIB, RESTORING, RUNNING, Stub


@pytest_asyncio.fixture
async def node(stub: Stub, tmp_path: Path) -> AsyncIterator[Node]:
    """A node with driver 615 whose helpers copy; their contexts take a MiB."""
    stub.set(version=13040, driver="615.71.09", context=MIB)
    config = replace(CONFIG, store=str(tmp_path / "memory"), helper_context_mib=1)
    node = await asyncio.to_thread(Node, tmp_path, config)
    yield node
    await node.backend.close()


def copies(tmp_path: Path, job: str = "17") -> list[Path]:
    return sorted((tmp_path / "memory" / "interleave-cuda" / job).glob("*/GPU-*"))


async def test_a_job_comes_back_bit_by_bit_from_files_of_ours(node: Node, stub: Stub, tmp_path: Path) -> None:
    ranks = [stub.start("17", f"{device}:2", f"{device + 1}:1") for device in range(3)]
    before = [rank.ask("hash") for rank in ranks]

    for _ in range(2):
        saved = await node.save()
        held = sum(path.stat().st_size for path in copies(tmp_path))
        away = [(stub.state(rank.pid), stub.on_device(rank.pid)) for rank in ranks]
        back = await node.bring()
        assert (saved.context, saved.moved, saved.error) == (Context.SAVED, 9 * MIB, "")
        assert (held, away) == (9 * MIB, [(CHECKPOINTED, 0)] * 3)
        assert (back.context, back.moved, back.error) == (Context.RESIDENT, 9 * MIB, "")

    assert [rank.ask("hash") for rank in ranks] == before
    assert not list(stub.folder.glob("host.*"))  # the driver has made no copy


async def test_a_smaller_copy_gives_the_rest_of_the_file_back(node: Node, stub: Stub, tmp_path: Path) -> None:
    rank = stub.start("17", "0:2", "0:4")
    await node.saved()
    first = [path.stat().st_size for path in copies(tmp_path)]
    await node.bring()
    sealed = list((tmp_path / "memory").rglob("seal.json"))

    rank.ask("free")
    await node.saved()

    assert (first, sealed) == ([6 * MIB], [])
    assert [path.stat().st_size for path in copies(tmp_path)] == [2 * MIB]


async def test_a_copy_of_another_size_is_not_taken_for_the_process_memory(
    node: Node, stub: Stub, tmp_path: Path
) -> None:
    rank = stub.start("17", "0:2")
    await node.saved()
    (seal,) = (tmp_path / "memory").rglob("seal.json")
    seal.write_text(json.dumps({stub.uuids[0]: MIB}))

    failed = await node.bring()

    assert failed.context is Context.FAULTED
    assert stub.state(rank.pid) == RESTORING  # never completed


async def test_the_copies_are_the_nodes_and_not_in_the_processes(node: Node) -> None:
    assert node.backend.charge is Charge.NODE
    assert not node.backend.in_process


async def test_helpers_leave_no_context_on_the_devices(node: Node, stub: Stub) -> None:
    rank = stub.start("17", "0:2")

    await node.saved()
    seen = await node.backend._sight.look()

    assert [gpu.used for gpu in seen.values()] == [MIB] * 4  # what is nobody's
    assert stub.state(rank.pid) == CHECKPOINTED


async def test_the_copies_end_with_the_job(node: Node, stub: Stub, tmp_path: Path) -> None:
    stub.start("17", "0:2")
    await node.saved()
    assert copies(tmp_path)

    await node.backend.discard(node.target("17"))

    assert not copies(tmp_path)


async def test_the_next_agent_restores_and_sweeps_what_no_job_needs(
    node: Node, stub: Stub, tmp_path: Path
) -> None:
    rank = stub.start("17", "0:2")
    before = rank.ask("hash")
    await node.saved()
    await node.backend.close()
    (tmp_path / "memory" / "interleave-cuda" / "99" / "1.1").mkdir(parents=True)
    (tmp_path / "memory" / "other").mkdir()

    heir = await asyncio.to_thread(Node, tmp_path, node.config)
    await heir.backend.recover(["17"])
    back = await heir.bring()

    assert back.ok, back
    assert rank.ask("hash") == before
    assert not (tmp_path / "memory" / "interleave-cuda" / "99").exists()
    assert (tmp_path / "memory" / "other").exists()
    await heir.backend.close()


async def test_what_a_helper_has_copied_comes_back_though_the_setting_is_gone(
    node: Node, stub: Stub, tmp_path: Path
) -> None:
    rank = stub.start("17", "0:2")
    before = rank.ask("hash")
    await node.saved()
    await node.backend.close()

    heir = await asyncio.to_thread(Node, tmp_path, replace(CONFIG, helper_context_mib=1))
    await heir.backend.recover(["17"])
    back = await heir.bring()
    again = await heir.save()

    assert (back.ok, again.ok, stub.state(rank.pid)) == (True, True, CHECKPOINTED)
    assert list(stub.folder.glob(f"host.{rank.pid}"))  # by the driver, this time
    assert (await heir.bring()).ok
    assert rank.ask("hash") == before
    await heir.backend.close()


async def test_a_copy_that_fails_half_way_is_a_loss_and_never_completed(node: Node, stub: Stub) -> None:
    rank = stub.start("17", "0:2")
    stub.fault("copy_out", 719)

    saved = await node.save()

    assert (saved.context, stub.state(rank.pid)) == (Context.FAULTED, CHECKPOINTING)
    assert stub.asked("complete") == []


async def test_a_copy_back_that_fails_is_a_loss(node: Node, stub: Stub) -> None:
    rank = stub.start("17", "0:2")
    await node.saved()
    stub.fault("copy_in", 719)

    back = await node.bring()

    assert (back.context, stub.state(rank.pid)) == (Context.FAULTED, RESTORING)
    assert len(stub.asked("complete")) == 1  # of the snapshot


async def test_files_without_room_refuse_before_the_driver_begins(
    node: Node, stub: Stub, tmp_path: Path
) -> None:
    rank = stub.start("17", "0:2")
    before = rank.ask("hash")
    (tmp_path / "memory").write_text("no folder")

    saved = await node.save()

    assert (saved.context, stub.asked("checkpoint")) == (Context.RESIDENT, [])
    assert "memory" in saved.error
    assert rank.ask("hash") == before


async def test_memory_that_cannot_be_pinned_is_copied_all_the_same(node: Node, stub: Stub) -> None:
    rank = stub.start("17", "0:2")
    before = rank.ask("hash")
    stub.fault("pin", 304, count=-1)

    await node.saved()
    await node.bring()

    assert rank.ask("hash") == before


async def test_a_driver_that_refuses_leaves_the_job_running(node: Node, stub: Stub) -> None:
    rank = stub.start("17", "0:2")
    stub.fault("checkpoint", 801, pid=rank.pid)

    saved = await node.save()

    assert (saved.context, stub.state(rank.pid)) == (Context.RESIDENT, RUNNING)


@pytest.mark.parametrize(("after", "context"), [(False, Context.FAULTED), (True, Context.SAVED)])
async def test_a_helper_that_is_lost_with_the_completion_is_judged_by_the_drivers_word(
    node: Node, stub: Stub, after: bool, context: Context
) -> None:
    rank = stub.start("17", "0:2")
    before = rank.ask("hash")
    node.deadline_s = 6
    stub.fault("complete", 0, delay_ms=60_000, after=after)

    saved = await node.save()

    assert saved.context is context, saved
    if after:
        assert (await node.bring()).ok
        assert rank.ask("hash") == before


async def test_room_for_the_contexts_of_helpers_is_asked_for(node: Node, stub: Stub) -> None:
    stub.start("17", "0:2")
    await node.saved()
    stub.start("18", "0:60")  # of 63 MiB: the state and the headroom fit, the context does not

    back = await node.bring()

    assert (back.context, back.error.startswith("no_room: ")) == (Context.SAVED, True)


async def test_without_such_a_driver_it_is_refused_by_name(stub: Stub, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no_custom_storage: "):
        await asyncio.to_thread(Node, tmp_path, replace(CONFIG, store=str(tmp_path)))


def test_a_store_is_a_folder_by_its_whole_path() -> None:
    with pytest.raises(ConfigError, match="must be the path of a folder"):
        replace(CONFIG, store="memory")


def test_what_is_not_sealed_is_not_there(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "1.1"))
    store.prepare({"a": mmap.PAGESIZE})
    unsealed = store.sizes
    store.seal({"a": 10})
    sealed = store.sizes
    store.prepare({"a": mmap.PAGESIZE})

    assert (unsealed, sealed, store.sizes) == ({}, {"a": 10}, {})


def test_a_file_that_the_disk_cannot_hold_is_an_error_and_no_signal(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "1.1"))

    with pytest.raises(OSError, match=r"No space left|too large|Invalid"):
        store.prepare({"a": 1 << 62})
