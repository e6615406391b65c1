from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from slurm_interleave.client.core.errors import SlurmFailed
from slurm_interleave.client.core.names import parse_group_name
from slurm_interleave.client.core.states import SliceState
from slurm_interleave.orchestrator.placement import accounts
from slurm_interleave.orchestrator.placement.accounts import Accounts
from slurm_interleave.orchestrator.placement.admin_comment import AdminComment, format_comment, parse_comment
from slurm_interleave.orchestrator.placement.figures import Figures
from slurm_interleave.orchestrator.placement.plan import Placement
from slurm_interleave.orchestrator.placement.squeue import SlurmJob
from slurm_interleave.sql.rows import Slice

PLACE = Placement("17", "demo", "", ("n1",), (0,), "ilva")
FIGURES = Figures(turns=3, held_s=12.5, device_s=25, waited_s=4, switches=2, switch_s=0.5)
SAID = "turns=3;held=12.5;device=25.0;waited=4.0;switches=2;switch=0.5"
FROM_BOOK = f"interleave:v1;group=demo;nodes=1;devices=1;role=;lane=ilva;indices=0;state=ended;{SAID}"


class FakeAccounting:
    """Knows the end of a job at the try that the test says, and fails while it says so."""

    def __init__(self, *, there: bool = True, known_at: int = 1) -> None:
        self.there, self.known_at = there, known_at
        self.fails = False
        self.tries = 0
        self.written: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self.tried: asyncio.Queue[str] = asyncio.Queue()
        self.asked = asyncio.Event()

    async def keeps_jobs(self) -> bool:
        self.asked.set()
        if self.fails:
            raise SlurmFailed("sacct: slurmdbd is away")
        return self.there

    async def account(self, job_id: str, admin_comment: str) -> bool:
        self.tries += 1
        self.tried.put_nowait(job_id)
        if self.tries < self.known_at:
            return False
        self.written.put_nowait((job_id, admin_comment))
        return True


@contextlib.asynccontextmanager
async def running(slurm: FakeAccounting) -> AsyncIterator[Accounts]:
    async def figures(_job_id: str) -> Figures:
        return FIGURES

    made = Accounts(slurm, figures, again_s=0.0)
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def turn(**more: object) -> Slice:
    base = Slice(
        epoch=1, job_id="17", group="demo", role="", uid=0, user="", account="", partition="", name="",
        backend="", nodes=("n1",), devices=("n1/0", "n1/1"), phase="", state=SliceState.YIELDED,
        requested=90.0, granted=100.0, ended=130.0, switched=True, switch_s=2.0, snapshot_s=1.0,
        restore_s=1.0, switch_bytes=8,
    )  # fmt: skip
    return replace(base, **more)  # type: ignore[arg-type]


async def test_a_job_that_is_over_is_written_with_what_slurmctld_said_of_it_last() -> None:
    slurm = FakeAccounting()
    comment = AdminComment(parse_group_name("demo"), 1, 1, backend="noop", why="no room").placed(PLACE)
    job = SlurmJob("17", frozenset({"COMPLETED"}), 1, "", format_comment(comment), ("n1",))

    async with running(slurm) as made:
        made.over(PLACE, [job])
        _, text = await slurm.written.get()

    assert text == FROM_BOOK.replace(";lane", ";backend=noop;lane")


@pytest.mark.parametrize("left", ["", "interleave:v1;broken", "somebody else's"])
async def test_a_job_that_slurmctld_has_forgotten_is_written_as_the_book_says(left: str) -> None:
    slurm = FakeAccounting()
    queue = [SlurmJob("17", frozenset({"COMPLETED"}), 1, "", left, ("n1",))] if left else []

    async with running(slurm) as made:
        made.over(PLACE, queue)

        assert await slurm.written.get() == ("17", FROM_BOOK)


async def test_the_database_is_asked_again_until_it_knows_the_end() -> None:
    slurm = FakeAccounting(known_at=5)

    async with running(slurm) as made:
        made.over(PLACE, [])
        await slurm.written.get()

    assert slurm.tries == 5


async def test_an_outage_is_logged_once_and_what_is_due_is_written_after_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slurm = FakeAccounting()
    slurm.fails = True

    async with running(slurm) as made:
        made.over(PLACE, [])
        for _ in range(3):
            slurm.asked.clear()
            await slurm.asked.wait()
        slurm.fails = False
        await slurm.written.get()

    assert [record.message for record in caplog.records] == ["accounting.failed"]


async def test_a_job_that_the_database_never_knows_is_given_up(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "_TRIES", 3)
    slurm = FakeAccounting(known_at=4)
    caplog.set_level(logging.INFO)

    async with running(slurm) as made:
        made.over(PLACE, [])
        assert [await slurm.tried.get() for _ in range(3)] == ["17"] * 3
        made.over(replace(PLACE, job_id="18"), [])
        assert (await slurm.written.get())[0] == "18"

    assert [record.message for record in caplog.records][:1] == ["accounting.given_up"]


async def test_without_a_slurmdbd_nothing_is_kept() -> None:
    slurm = FakeAccounting(there=False)

    async with running(slurm) as made:
        made.over(PLACE, [])
        await slurm.asked.wait()
        await asyncio.sleep(0)
        slurm.there = True
        made.over(replace(PLACE, job_id="18"), [])

        assert (await slurm.written.get())[0] == "18"
    assert slurm.tries == 1


def test_the_figures_are_sums_over_all_turns() -> None:
    figures = Figures().plus([turn()], 200.0).plus([turn(requested=130.0, granted=140.0, ended=145.0)], 200.0)

    assert figures == Figures(turns=2, held_s=35, device_s=70, waited_s=20, switches=2, switch_s=4)


def test_a_turn_that_lasts_counts_until_now_and_one_that_waits_not_at_all() -> None:
    lasts, waits = turn(ended=0.0, switched=False, switch_s=0.0), turn(granted=0.0, ended=0.0)

    figures = Figures().plus([lasts, waits], 110.0)

    assert figures == Figures(turns=1, held_s=10, device_s=20, waited_s=10)


def test_what_is_written_can_be_read_again() -> None:
    read = parse_comment(FROM_BOOK)

    assert read is not None
    assert (read.group, read.state, read.lane, read.indices) == ("demo", "ended", "ilva", (0,))
