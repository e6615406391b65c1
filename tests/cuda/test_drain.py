"""Jobs that are drained with their device state in them, and come back here or elsewhere."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from lab import LocalLab
from lab.processes import wait_until
from slurm_interleave.client.core.errors import WrongState
from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent.backends.cuda.backend import CudaBackend
from slurm_interleave.node_agent.backends.cuda.carried import Place, pairs
from slurm_interleave.node_agent.backends.protocol import Mover, Target
from slurm_interleave.node_agent.contexts import JobContext, Outcome, Seen, Verb
from slurm_interleave.node_agent.in_process import InProcess
from slurm_interleave.node_agent.job_processes import Owner
from slurm_interleave.node_agent.operations import Operations
from slurm_interleave.node_agent.state import Job, Request, State
from slurm_interleave.node_agent.waits import Stop
from tests.cuda.conftest import CONFIG
from tests.lab.test_drain import CRIU, NOT_HERE, PROGRAM
from tests.stub_driver.stub import CHECKPOINTED, MIB, RUNNING, Stub

HERE = Place("580.95.05", "H100", True, ("a", "b", "c"), ("b",))
SEES_ALL = replace(HERE, constrained=False)


@pytest.mark.parametrize(
    ("old", "new", "why", "moved"),
    [
        (HERE, HERE, "", ()),
        (SEES_ALL, SEES_ALL, "", ()),
        (HERE, replace(HERE, mine=("c",)), "", (("b", "c"),)),
        (HERE, replace(HERE, every=("x", "y"), mine=("y",)), "", (("b", "y"),)),
        (SEES_ALL, replace(SEES_ALL, mine=("c",)), "", (("b", "c"), ("a", "a"), ("c", "b"))),
        (
            SEES_ALL,
            replace(SEES_ALL, every=("x", "y", "z"), mine=("x",)),
            "",
            (("b", "x"), ("a", "y"), ("c", "z")),
        ),
        (SEES_ALL, replace(SEES_ALL, every=("x", "y"), mine=("x",)), "1 of 3 H100; here it has 1 of 2", ()),
        (HERE, replace(HERE, mine=("a", "c")), "1 of 1 H100; here it has 2 of 2 H100", ()),
        (HERE, replace(HERE, card="A100", mine=("c",)), "1 of 1 H100; here it has 1 of 1 A100", ()),
        (HERE, replace(HERE, driver="595.1"), "driver 580.95.05, and here is 595.1", ()),
        (HERE, replace(SEES_ALL, mine=("c",)), "is not known (ConstrainDevices)", ()),
        (
            replace(HERE, constrained=None),
            replace(HERE, constrained=None, mine=("c",)),
            "is not known (ConstrainDevices)",
            (),
        ),
        (
            replace(HERE, driver="575.57.08"),
            replace(HERE, driver="575.57.08", mine=("c",)),
            "580 or later can",
            (),
        ),
    ],
)
def test_the_drivers_map_names_what_the_processes_see(
    old: Place, new: Place, why: str, moved: tuple[tuple[str, str], ...]
) -> None:
    refusal, found = pairs(old, new)

    assert (why in refusal, bool(refusal), found) == (True, bool(why), moved)


class Suspends(Mover):
    """Stands for an application that takes itself off, and leaves its context."""

    name = "app_channel"
    in_app = True
    in_process = True

    async def snapshot(self, _target: Target) -> Outcome:
        return Outcome(Context.SAVED, 30 * MIB, kept=4 * MIB)

    async def restore(self, _target: Target) -> Outcome:
        return Outcome(Context.RESIDENT, 30 * MIB)

    async def discard(self, _target: Target) -> Outcome:
        return Outcome(Context.NONE)


class Nodes:
    """Two agents' parts that hold and bring back the state of job 17, by the same driver."""

    def __init__(self, folder: Path, mover: Mover | None = None) -> None:
        self.job = Job(Request("17", "demo", "", (0,), 0, 0), "a", "token")
        self.state = State(folder)
        self.state.jobs["17"] = self.job
        self.backend = CudaBackend(CONFIG, folder, lambda: {"17": Owner(0)})
        named = {"": mover, "app_channel": mover}
        self.operations = Operations(self.state, self.backend, 20.0, lambda _, by: named.get(by))
        self.in_process = InProcess(self.state, self.operations)

    async def dumped(self) -> tuple[JobContext, dict[str, Any]]:
        async with self.in_process.holding(self.job, Stop()):
            return self.job.context, self.backend.carried("17")


@pytest_asyncio.fixture
async def here(stub: Stub, tmp_path: Path) -> AsyncIterator[Nodes]:
    nodes = await asyncio.to_thread(Nodes, tmp_path / "here")
    yield nodes
    await nodes.backend.close()


@pytest.fixture(autouse=True)
def folders(tmp_path: Path) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()


async def test_a_job_is_saved_by_the_driver_before_its_processes_are(here: Nodes, stub: Stub) -> None:
    rank = stub.start("17", "0:3")

    context, carried = await here.dumped()

    assert (context.state, context.bytes) == (Context.SAVED, 3 * MIB)
    assert stub.state(rank.pid) == CHECKPOINTED
    assert carried["bytes"] == {stub.uuids[0]: 3 * MIB}


async def test_a_drain_that_is_cancelled_while_the_driver_saves_leaves_the_job_on_its_devices(
    here: Nodes, stub: Stub
) -> None:
    rank, stop = await asyncio.to_thread(stub.start, "17", "0:3"), Stop()
    before = rank.ask("hash")
    stub.fault("checkpoint", 0, pid=rank.pid, delay_ms=500)

    async def held() -> None:
        async with here.in_process.holding(here.job, stop):
            raise AssertionError("it was not cancelled")

    holding = asyncio.create_task(held())
    await asyncio.to_thread(stub.wait_until_asked, "checkpoint", rank.pid)
    stop.set()

    with pytest.raises(WrongState, match="cancelled"):
        await holding
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
    if before is Context.SAVED:
        assert (node.job.context, stub.state(rank.pid)) == (suspended, RUNNING)
    await node.backend.close()


async def test_what_was_left_and_cannot_be_saved_is_told(stub: Stub, tmp_path: Path) -> None:
    node = await asyncio.to_thread(Nodes, tmp_path / "here", Suspends())
    rank = stub.start("17", "0:4")
    suspended = JobContext(Context.SAVED, 30 * MIB, saved_by="app_channel", kept=4 * MIB)
    node.job.context = suspended
    stub.fault("checkpoint", 801)

    with pytest.raises(WrongState, match="not supported"):
        await node.dumped()

    assert (node.job.context, stub.state(rank.pid)) == (suspended, RUNNING)
    await node.backend.close()


async def test_a_job_that_comes_back_is_saved_until_it_gets_its_turn(
    here: Nodes, stub: Stub, tmp_path: Path
) -> None:
    rank = stub.start("17", "0:3")
    before = rank.ask("hash")
    context, carried = await here.dumped()
    there = await asyncio.to_thread(Nodes, tmp_path / "there")
    launcher = stub.start("17", "0:0")  # it has loaded CUDA, and was not saved
    (stub.folder / f"proc.{launcher.pid}").unlink()

    async with there.in_process.coming_back(there.job, context, carried):
        during = there.operations.refresh(there.job)
    back = there.operations.refresh(there.job)
    restored = await there.backend.restore(Target("17", (0,), 20.0))

    assert during.state is back.state is Context.SAVED
    assert there.backend.look("17") == Seen(Context.RESIDENT, 3 * MIB)
    assert restored.moved == 3 * MIB
    assert rank.ask("hash") == before
    await there.backend.close()


async def test_a_job_comes_back_on_other_devices(
    here: Nodes, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cgroup.conf").write_text("ConstrainDevices=no\n")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    rank = stub.start("17", "0:3")
    before = rank.ask("hash")
    here = await asyncio.to_thread(Nodes, tmp_path / "here")
    context, carried = await here.dumped()
    there = await asyncio.to_thread(Nodes, tmp_path / "there")
    there.job.request = replace(there.job.request, devices=(2,))

    async with there.in_process.coming_back(there.job, context, carried):
        pass
    again = there.backend.carried("17")
    restored = await there.backend.restore(Target("17", (2,), 20.0))

    assert restored.ok, restored
    assert stub.bytes(rank.pid) == {2: 3 * MIB}
    assert rank.ask("hash") == before
    assert again["mine"] == (stub.uuids[0],)  # what it was called when the driver saved it
    await asyncio.gather(here.backend.close(), there.backend.close())


async def test_a_job_does_not_come_back_under_another_driver(here: Nodes, stub: Stub, tmp_path: Path) -> None:
    stub.start("17", "0:3")
    context, carried = await here.dumped()
    stub.set(driver="590.1.1")
    there = await asyncio.to_thread(Nodes, tmp_path / "there")

    with pytest.raises(WrongState, match=r"saved by driver 580\.95\.05, and here is 590\.1\.1"):
        async with there.in_process.coming_back(there.job, context, carried):
            raise AssertionError("its processes must not come back")

    assert there.job.context == JobContext()
    await there.backend.close()


async def test_a_job_whose_processes_do_not_come_back_has_no_state(here: Nodes, stub: Stub) -> None:
    stub.start("17", "0:3")
    context, carried = await here.dumped()
    here.backend._records.forget("17")

    with pytest.raises(OSError, match="no memory"):
        async with here.in_process.coming_back(here.job, context, carried):
            raise OSError("no memory")

    assert here.job.context == JobContext()


async def test_a_job_that_came_back_without_cuda_is_lost(here: Nodes, stub: Stub) -> None:
    rank = stub.start("17", "0:3")
    context, carried = await here.dumped()
    here.backend._records.forget("17")

    async with here.in_process.coming_back(here.job, context, carried):
        rank.kill()

    assert here.job.context.state is Context.FAULTED
    assert "cannot be found" in here.job.context.fault


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
