"""Jobs that are drained with their device state in them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lab import LocalLab
from lab.processes import wait_until
from slurm_interleave.client.core.errors import WrongState
from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent.contexts import JobContext, Outcome, Verb
from slurm_interleave.node_agent.waits import Stop
from tests.cuda.nodes import Nodes, Suspends, folders, here
from tests.lab.commands import PROGRAM
from tests.lab.draining import CRIU, NOT_HERE
from tests.stub_driver.stub import CHECKPOINTED, MIB, RUNNING, Process, Stub

__all__ = ["folders", "here"]


async def test_a_job_is_saved_by_the_driver_before_its_processes_are(here: Nodes, stub: Stub) -> None:
    rank = stub.start("17", "0:3")

    context, carried = await here.dumped()

    assert (context.state, context.bytes) == (Context.SAVED, 3 * MIB)
    assert stub.state(rank.pid) == CHECKPOINTED
    assert carried["bytes"] == {stub.uuids[0]: 3 * MIB}


async def held_and_cancelled(node: Nodes, stub: Stub, rank: Process) -> None:
    """Begin to save the job for a drain, which is cancelled while the driver saves *rank*."""
    stop = Stop()
    stub.fault("checkpoint", 0, pid=rank.pid, delay_ms=500)

    async def held() -> None:
        async with node.in_process.holding(node.job, stop):
            raise AssertionError("it was not cancelled")

    holding = asyncio.create_task(held())
    await asyncio.to_thread(stub.wait_until_asked, "checkpoint", rank.pid)
    stop.set()
    await holding


async def test_a_drain_that_is_cancelled_while_the_driver_saves_what_was_left_leaves_that_there(
    stub: Stub, tmp_path: Path
) -> None:
    node = await asyncio.to_thread(Nodes, tmp_path / "here", Suspends())
    rank = await asyncio.to_thread(stub.start, "17", "0:4")
    suspended = JobContext(Context.SAVED, 30 * MIB, saved_by="app_channel", kept=4 * MIB)
    node.job.context = suspended

    with pytest.raises(WrongState, match="cancelled"):
        await held_and_cancelled(node, stub, rank)
    assert (node.job.context, stub.state(rank.pid)) == (suspended, RUNNING)
    await node.backend.close()


async def test_a_drain_that_is_cancelled_while_the_driver_saves_leaves_the_job_on_its_devices(
    here: Nodes, stub: Stub
) -> None:
    rank = await asyncio.to_thread(stub.start, "17", "0:3")
    before = rank.ask("hash")

    with pytest.raises(WrongState, match="cancelled"):
        await held_and_cancelled(here, stub, rank)
    assert (here.job.context.state, stub.state(rank.pid)) == (Context.RESIDENT, RUNNING)
    assert rank.ask("hash") == before


async def test_a_job_whose_processes_cannot_be_saved_has_its_state_at_its_next_turn(
    here: Nodes, stub: Stub
) -> None:
    rank = stub.start("17", "0:3")
    before = rank.ask("hash")

    with pytest.raises(RuntimeError, match="criu"):
        async with here.in_process.holding(here.job, Stop()):
            raise RuntimeError("criu")
    known, on_device = here.job.context.state, stub.state(rank.pid) == RUNNING
    result = await here.operations.order("1-1", Verb.RESTORE, "17", "a")

    # Not before: another job may have been given the devices.
    assert (known, on_device) == (Context.SAVED, False)
    assert result.outcome == Outcome(Context.RESIDENT, 3 * MIB)
    assert rank.ask("hash") == before


@pytest.mark.parametrize("before", [Context.RESIDENT, Context.SAVED])
async def test_what_a_suspended_application_left_is_saved_too_and_undone_too(
    stub: Stub, tmp_path: Path, before: Context
) -> None:
    node = await asyncio.to_thread(Nodes, tmp_path / "here", Suspends())
    rank = stub.start("17", "0:4")
    suspended = JobContext(Context.SAVED, 30 * MIB, saved_by="app_channel", kept=4 * MIB)
    node.job.context = suspended if before is Context.SAVED else JobContext(before)

    seen: list[Any] = []

    async def fails() -> None:
        async with node.in_process.holding(node.job, Stop()):
            seen.extend((stub.state(rank.pid), node.job.context))
            raise RuntimeError("criu")

    with pytest.raises(RuntimeError, match="criu"):
        await fails()

    assert seen[0] == CHECKPOINTED
    assert seen[1] == JobContext(Context.SAVED, 34 * MIB, saved_by="app_channel+cuda")
    # What was on the devices stays saved: they may be another job's by now.
    undone = (suspended, RUNNING) if before is Context.SAVED else (seen[1], CHECKPOINTED)
    assert (node.job.context, stub.state(rank.pid)) == undone
    await node.backend.close()


@pytest.mark.parametrize("before", [Context.RESIDENT, Context.SAVED])
async def test_what_was_left_and_cannot_be_saved_is_told(stub: Stub, tmp_path: Path, before: Context) -> None:
    node = await asyncio.to_thread(Nodes, tmp_path / "here", Suspends())
    rank = stub.start("17", "0:4")
    suspended = JobContext(Context.SAVED, 30 * MIB, saved_by="app_channel", kept=4 * MIB)
    node.job.context = suspended if before is Context.SAVED else JobContext(before)
    stub.fault("checkpoint", 801)

    with pytest.raises(WrongState, match="not supported"):
        await node.dumped()

    assert (node.job.context, stub.state(rank.pid)) == (suspended, RUNNING)
    await node.backend.close()


TRAINER = """
import ctypes, itertools, os, sys, time
from slurm_interleave.client import Interleaver

cuda = ctypes.CDLL("libcuda.so.1")
turns = Interleaver.from_env()
context, address, size = ctypes.c_void_p(), ctypes.c_uint64(), 1 << 20
secret, copy = os.urandom(size), ctypes.create_string_buffer(size)
with turns.turn("load"):
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)) == 0
    assert cuda.cuMemcpyHtoD_v2(address, secret, ctypes.c_size_t(size)) == 0
for number in itertools.count(1):
    with turns.turn("count"):
        assert cuda.cuMemcpyDtoH_v2(copy, address, ctypes.c_size_t(size)) == 0
        print("counts", number, "right" if copy.raw == secret else "wrong", flush=True)
    time.sleep(0.2)
    if os.path.exists(sys.argv[1]):
        sys.exit(7)
"""


@pytest.mark.timeout(120)
@pytest.mark.skipif(bool(NOT_HERE), reason=NOT_HERE)
def test_a_job_goes_on_with_its_device_memory_by_a_real_criu(stub: Stub, tmp_path: Path) -> None:
    agent = {"backend": "cuda", "criu": CRIU, "image_dir": str(tmp_path / "images")}
    with LocalLab.start(config={"agent": agent, "cuda": {"headroom_mib": 1, "look_s": 0.1}}) as lab:
        command = [str(PROGRAM), "run", "--own-turns", sys.executable, "-c", TRAINER, str(tmp_path / "end")]
        job = lab.submit(command, group="demo", name=f"cuda-{os.getpid()}", env=stub.environment)

        def counts() -> list[list[str]]:
            lines = [line.split() for line in lab.output(job).splitlines()]
            return [words for words in lines if words[:1] == ["counts"]]

        assert wait_until(lambda: len(counts()) > 3, 30), lab.output(job) + lab.logs("agent-local")
        drain = [PROGRAM, "drain", "local", "--keep-node", "--config", lab.config]
        done = subprocess.run(drain, env=lab.env, capture_output=True, text=True, check=False)
        while "holds its devices now" in done.stderr:
            done = subprocess.run(drain, env=lab.env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr + lab.logs("agent-local")
        assert lab.wait(job) == 128 + signal.SIGKILL
        before = counts()

        lab.submit(command, group="demo", again=job, env=stub.environment)

        assert wait_until(lambda: len(counts()) > 3, 30), lab.output(job) + lab.logs("agent-local")
        assert int(counts()[0][1]) == int(before[-1][1]) + 1
        assert {words[2] for words in counts()} == {"right"}
        assert stub.asked("restore")
        (tmp_path / "end").touch()
        assert lab.wait(job) == 7
