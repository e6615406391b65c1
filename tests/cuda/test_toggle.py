"""Drivers 550 to 554: a stand-in for the cuda-checkpoint of then, which knows --toggle and --pid alone."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent.contexts import Seen
from tests.cuda.conftest import Node, node_with_tool
from tests.stub_driver.stub import CHECKPOINTED, MIB, RUNNING, Stub

# It goes all of the way, or, where a step fails, back to where the process was, as far as the driver lets it.
PROGRAM = f"""#!{sys.executable}
import argparse, ctypes, sys
parser = argparse.ArgumentParser()
parser.add_argument("--pid", type=int, required=True)
parser.add_argument("--toggle", action="store_true", required=True)
pid = parser.parse_args().pid
cuda = ctypes.CDLL("libcuda.so.1")
state = ctypes.c_int()
texts = {{2: "out of memory", 3: "initialization error", 801: "operation not supported"}}
def call(name, *args):
    code = getattr(cuda, "cuCheckpointProcess" + name)(pid, *args)
    if code and name == "Checkpoint":
        cuda.cuCheckpointProcessUnlock(pid, None)
    if code:
        sys.exit(f"Could not toggle: {{texts.get(code, 'error')!r}}")
call("GetState", ctypes.byref(state))
for name in (("Lock", "Checkpoint") if state.value == 0 else ("Restore", "Unlock")):
    call(name, None)
"""


@pytest_asyncio.fixture
async def old_node(stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    """A node with driver 550 and the program."""
    stub.set(version=12040, driver="550.54.14")
    async with node_with_tool(PROGRAM, tmp_path, monkeypatch) as node:
        yield node


async def test_a_job_of_one_process_comes_back_bit_by_bit_again_and_again(old_node: Node, stub: Stub) -> None:
    rank = stub.start("17", "0:2", "1:3")
    before = rank.ask("hash")

    for _ in range(2):
        saved = await old_node.save()
        away = stub.state(rank.pid), stub.on_device(rank.pid)
        back = await old_node.bring()
        assert (saved.context, saved.moved, saved.error, away) == (
            Context.SAVED,
            5 * MIB,
            "",
            (CHECKPOINTED, 0),
        )
        assert (back.context, back.moved, back.error) == (Context.RESIDENT, 5 * MIB, "")

    assert rank.ask("hash") == before


async def test_a_job_of_several_processes_runs_on_and_is_told_why(old_node: Node, stub: Stub) -> None:
    ranks = [stub.start("17", f"{device}:2") for device in range(2)]

    saved = await old_node.save()

    assert saved.context is Context.RESIDENT
    assert saved.error == "2 of its processes use CUDA, and this driver can save one"
    assert {stub.state(rank.pid) for rank in ranks} == {RUNNING}
    assert stub.asked("checkpoint") == []


async def test_a_toggle_that_fails_leaves_the_job_running(old_node: Node, stub: Stub) -> None:
    rank = stub.start("17", "0:2")
    before = rank.ask("hash")
    stub.fault("checkpoint", 801)

    saved = await old_node.save()

    assert (saved.context, "not supported" in saved.error) == (Context.RESIDENT, True)
    assert rank.ask("hash") == before


@pytest.mark.parametrize("after", [False, True])
async def test_a_toggle_without_an_answer_is_never_made_again_and_the_job_is_lost(
    old_node: Node, stub: Stub, after: bool
) -> None:
    """Whether it has gone one way or will yet, nobody can say: another toggle might undo it."""
    rank = stub.start("17", "0:2")
    old_node.deadline_s = 4
    stub.fault("checkpoint", 0, delay_ms=60_000, after=after)

    saved = await old_node.save()

    assert saved.context is Context.FAULTED, saved
    assert len(stub.asked("checkpoint", rank.pid)) == 1
    assert stub.asked("restore") == []


async def test_a_restore_that_meets_no_memory_is_a_loss(old_node: Node, stub: Stub) -> None:
    stub.start("17", "0:2")
    await old_node.saved()
    stub.fault("restore", 2)

    back = await old_node.bring()

    assert (back.context, "out of memory" in back.error) == (Context.FAULTED, True)


async def test_a_saved_job_is_known_to_the_next_agent(old_node: Node, stub: Stub, tmp_path: Path) -> None:
    rank = stub.start("17", "0:2")
    before = rank.ask("hash")
    await old_node.saved()
    await old_node.backend.close()

    heir = await asyncio.to_thread(Node, tmp_path)
    await heir.backend.recover(["17"])
    seen = heir.backend.look("17")
    back = await heir.bring()

    assert (seen, back.ok) == (Seen(Context.SAVED, 2 * MIB), True)
    assert rank.ask("hash") == before
    await heir.backend.close()


async def test_devices_cannot_be_exchanged(old_node: Node, stub: Stub) -> None:
    stub.start("17", "0:2")
    await old_node.saved("17", 0)

    back = await old_node.bring("17", 1)

    assert (back.context, "580 or later can" in back.error) == (Context.SAVED, True)
