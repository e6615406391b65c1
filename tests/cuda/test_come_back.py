"""Jobs that were drained with their device state in them, and come back here or elsewhere."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_interleave.client.core.errors import WrongState
from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent.backends.cuda.carried import Place, pairs
from slurm_interleave.node_agent.backends.protocol import Target
from slurm_interleave.node_agent.contexts import JobContext, Seen
from tests.cuda.nodes import Nodes, folders, here
from tests.stub_driver.stub import MIB, Stub

__all__ = ["folders", "here"]


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
