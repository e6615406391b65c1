"""Drivers that have no functions for it: by the program cuda-checkpoint, which here is one of our own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent.backends.cuda.tool import Tool
from tests.cuda.conftest import Node, node_with_tool
from tests.stub_driver.stub import CHECKPOINTED, MIB, RUNNING, Stub

PROGRAM = f"""#!{sys.executable}
import argparse, ctypes, sys
parser = argparse.ArgumentParser()
parser.add_argument("--pid", type=int)
parser.add_argument("--action", choices=("lock", "checkpoint", "restore", "unlock"))
parser.add_argument("--timeout", type=int, default=0)
parser.add_argument("--get-state", action="store_true")
parser.add_argument("--get-restore-tid", action="store_true")
args = parser.parse_args()
cuda = ctypes.CDLL("libcuda.so.1")
value = ctypes.c_int()
if args.get_state:
    code = cuda.cuCheckpointProcessGetState(args.pid, ctypes.byref(value))
    said = ("running", "locked", "checkpointed", "failed")[value.value]
elif args.get_restore_tid:
    code = cuda.cuCheckpointProcessGetRestoreThreadId(args.pid, ctypes.byref(value))
    said = str(value.value)
elif args.action == "lock":
    code, said = cuda.cuCheckpointProcessLock(args.pid, (ctypes.c_uint * 16)(args.timeout)), ""
else:
    code, said = getattr(cuda, "cuCheckpointProcess" + args.action.title())(args.pid, None), ""
texts = {{2: "out of memory", 3: "initialization error", 600: "device not ready",
    801: "operation not supported",
    304: "OS call failed or operation not supported on this OS",
    401: "the operation cannot be performed in the present state"}}
if code:
    sys.exit(f"Could not do it: {{texts[code]!r}}")
if said:
    print(said)
"""


@pytest_asyncio.fixture
async def old_node(stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    """A node with driver 565 and the program."""
    stub.set(version=12070, driver="565.57.01")
    async with node_with_tool(PROGRAM, tmp_path, monkeypatch) as node:
        yield node


async def test_a_job_comes_back_bit_by_bit(old_node: Node, stub: Stub) -> None:
    ranks = [stub.start("17", f"{device}:2") for device in range(2)]
    before = [rank.ask("hash") for rank in ranks]

    saved = await old_node.save()
    away = {stub.state(rank.pid) for rank in ranks}
    back = await old_node.bring()

    assert (saved.context, saved.moved, saved.error, away) == (Context.SAVED, 4 * MIB, "", {CHECKPOINTED})
    assert back.ok
    assert [rank.ask("hash") for rank in ranks] == before


async def test_a_failure_is_told_and_undone(old_node: Node, stub: Stub) -> None:
    ranks = [stub.start("17", f"{device}:2") for device in range(2)]
    stub.fault("checkpoint", 801, pid=ranks[1].pid)

    saved = await old_node.save()

    assert saved.context is Context.RESIDENT
    assert "not supported" in saved.error
    assert {stub.state(rank.pid) for rank in ranks} == {RUNNING}


async def test_a_program_that_hangs_is_killed_with_its_helper(old_node: Node, stub: Stub) -> None:
    rank = stub.start("17", "0:2")
    before = rank.ask("hash")
    old_node.deadline_s = 4
    stub.fault("checkpoint", 0, pid=rank.pid, delay_ms=60_000)

    saved = await old_node.save()

    assert saved.context is Context.RESIDENT, saved
    assert rank.ask("hash") == before
    assert f"--action checkpoint --pid {rank.pid}" not in await asyncio.to_thread(_all_programs)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("out of memory", 2),
        ("initialization error", 3),
        ("OS call failed or operation not supported on this OS", 304),
        ("the operation cannot be performed in the present state", 401),
        ("device not ready", 600),
        ("operation not permitted", 800),
        ("operation not supported", 801),
        ("something new", 999),
    ],
)
def test_what_the_program_says_is_the_drivers_code(tmp_path: Path, said: str, code: int) -> None:
    program = tmp_path / "cuda-checkpoint"
    program.write_text(f"#!/bin/sh\necho 'Error: \"{said}\"' >&2\nexit 1\n")
    program.chmod(0o755)

    assert Tool(str(program)).checkpoint(1) == (code, 0)


def test_a_program_that_is_not_there_is_an_error_like_another(tmp_path: Path) -> None:
    tool = Tool(str(tmp_path / "none"))

    assert tool.state(1) == (999, 0)
    assert tool.thread(1) == (999, 0)


def test_a_state_that_is_not_known_is_no_state(tmp_path: Path) -> None:
    program = tmp_path / "cuda-checkpoint"
    program.write_text("#!/bin/sh\necho migrating\n")
    program.chmod(0o755)

    assert Tool(str(program)).state(1) == (999, 0)


def test_devices_cannot_be_exchanged_by_the_program() -> None:
    assert Tool("true").restore(1, [("GPU-a", "GPU-b")]) == (801, 0)


def _all_programs() -> str:
    return subprocess.run(["ps", "-eo", "args"], check=True, capture_output=True, text=True).stdout
