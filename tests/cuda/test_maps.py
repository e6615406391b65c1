"""A job that comes back on other devices of its node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from slurm_interleave.client.core.states import Context
from tests.cuda.conftest import Node
from tests.stub_driver.stub import MIB, Stub


@pytest_asyncio.fixture
async def open_node(stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    """A node whose jobs see all devices."""
    slurm = tmp_path / "slurm"
    slurm.mkdir()
    (slurm / "cgroup.conf").write_text("ConstrainDevices=no\n")
    monkeypatch.setenv("SLURM_CONF", str(slurm / "slurm.conf"))
    node = await asyncio.to_thread(Node, tmp_path)
    yield node
    await node.backend.close()


async def test_a_job_comes_back_on_other_devices(open_node: Node, stub: Stub) -> None:
    rank = stub.start("17", "0:2", "1:3")
    before = rank.ask("hash")
    await open_node.saved("17", 0, 1)

    back = await open_node.bring("17", 3, 2)

    assert (back.context, back.error) == (Context.RESIDENT, "")
    assert stub.bytes(rank.pid) == {3: 2 * MIB, 2: 3 * MIB}
    assert rank.ask("hash") == before


@pytest.mark.parametrize("lost", [0, 2])
async def test_a_job_whose_old_or_new_device_is_lost_stays_saved_until_that_is_back(
    open_node: Node, stub: Stub, lost: int
) -> None:
    rank = stub.start("17", "0:2")
    before = rank.ask("hash")
    await open_node.saved("17", 0)
    stub.set(lost=lost)
    await open_node.backend._sight.look()

    refused = await open_node.bring("17", 2)

    assert refused.context is Context.SAVED
    assert refused.error == f"device_lost: NVML does not find device {lost} any more"
    stub.set(lost=-1)
    await open_node.backend._sight.look()
    assert (await open_node.bring("17", 2)).ok
    assert rank.ask("hash") == before


async def test_and_from_there_again_to_others(open_node: Node, stub: Stub) -> None:
    rank = stub.start("17", "0:2")
    before = rank.ask("hash")

    for devices in ((0,), (2,), (1,), (0,)):
        assert (await open_node.bring("17", *devices)).ok
        assert stub.bytes(rank.pid) == {devices[0]: 2 * MIB}
        assert (await open_node.saved("17", *devices)).moved == 2 * MIB
    await open_node.bring("17", 0)

    assert rank.ask("hash") == before


async def test_room_is_looked_for_where_the_job_will_be(open_node: Node, stub: Stub) -> None:
    stub.start("17", "0:4")
    await open_node.saved("17", 0)
    stub.start("18", "3:60")

    refused = await open_node.bring("17", 3)

    assert refused.context is Context.SAVED
    assert "no_room: device 3" in refused.error
    assert (await open_node.bring("17", 0)).ok


async def test_where_devices_cannot_be_exchanged_that_is_said(node: Node, stub: Stub) -> None:
    stub.start("17", "0:2")
    await node.saved("17", 0)

    refused = await node.bring("17", 1)

    assert refused.context is Context.SAVED
    assert "saved on other devices: ConstrainDevices shows a job its own devices alone" in refused.error
    assert not stub.asked("restore")
    assert (await node.bring("17", 0)).ok
