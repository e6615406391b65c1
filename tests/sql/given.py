"""Rows and batches for the tests, and the witness that a batch was written as a whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from slurm_interleave.client.core.states import Context, SliceState
from slurm_interleave.sql.engine import open_engine
from slurm_interleave.sql.rows import Key, Lease, Member, Part, Reservation, Row, Slice, Waiter
from slurm_interleave.sql.store import RowId, SliceFilter, Store, row_id

Changes = dict[RowId, Row | None]
MEMBER = Member("17", "grpo", uid=1000, user="alice", nodes=("n1", "n2"))
PART = Part("17", "grpo", "n1", "attempt-1", (0, 1), Context.RESIDENT, 2**40, "op-1", "ab" * 32)
WAITER = Waiter("17", "grpo", 1, "rollout", 1.5, ("other", "18/samplers"), driver="16")
LEASE = Lease("17", "grpo", 1, "rollout", 1.25, 2.5, True, True, 0.1, 0.2, 0.3, 2**40, driver="16")
SLICE = Slice(
    epoch=1,
    job_id="17",
    group="grpo",
    role="trainer",
    uid=1000,
    user="alice",
    account="physics",
    partition="interleave",
    name="train",
    backend="sim",
    nodes=("n1",),
    devices=("n1/0", "n1/1"),
    phase="rollout",
    state=SliceState.YIELDED,
    requested=1.25,
    granted=2.5,
    ended=3.75,
    switched=True,
    switch_s=0.1,
    snapshot_s=0.2,
    restore_s=0.3,
    switch_bytes=2**40,
)
RESERVATION = Reservation("17", "grpo", "trainer", ("n1", "n2"), (0, 1), "ilva")
EACH: tuple[Row, ...] = (MEMBER, PART, WAITER, LEASE, SLICE, RESERVATION)


def slice_of(epoch: int, **changes: Any) -> Slice:
    """A slice that ended at second *epoch*."""
    return replace(SLICE, **{"epoch": epoch, "ended": float(epoch), **changes})


def put(*rows: Row) -> Changes:
    return {row_id(row): row for row in rows}


def drop(*rows: Row) -> Changes:
    return dict.fromkeys(map(row_id, rows))


def members() -> Changes:
    """The two members that `handover` turns between."""
    return put(*(Member(job, "grpo", user="alice") for job in ("1", "2")))


def handover(epoch: int) -> Changes:
    """Lease *epoch* - 1 ends as a slice, its context is saved; the job that waited gets lease *epoch*."""
    old, new = ("1", "2") if epoch % 2 else ("2", "1")
    ended = drop(Lease(old, "grpo", epoch - 1, "", 0.0, 0.0)) if epoch > 1 else {}
    if epoch > 1:
        ended |= put(slice_of(epoch - 1, job_id=old))
    saved = Part(old, "grpo", "n1", "a", (0,), Context.SAVED, epoch, f"save-{epoch}")
    restored = Part(new, "grpo", "n1", "a", (0,), Context.RESIDENT, 0, f"restore-{epoch}")
    granted = put(saved, restored, Lease(new, "grpo", epoch, "rollout", 1.0, 2.0))
    return {**ended, **drop(Waiter(new, "grpo", epoch, "", 0.0)), **granted}


def assert_handed_over(store: Store, acknowledged: int) -> None:
    """Nothing up to *acknowledged* is lost, nothing is half there."""
    epoch = store.epoch
    assert epoch in (acknowledged, acknowledged + 1)  # the last one may count although nobody heard of it
    assert [lease.epoch for lease in store.all(Lease)] == [epoch]
    slices = [row for page in store.slices(SliceFilter()) for row in page]
    assert [row.epoch for row in slices] == list(range(1, epoch))
    assert {part.operation for part in store.all(Part)} == {f"save-{epoch}", f"restore-{epoch}"}
    assert store.last_yields() == {Key(row.job_id, row.group): row.epoch for row in slices}


def execute(url: str, *statements: str) -> None:
    """Change the database behind the back of the store."""
    engine = open_engine(url)
    with engine.begin() as db:
        for statement in statements:
            db.execute(sa.text(statement))
    engine.dispose()
