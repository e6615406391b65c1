"""`check` finds what cannot be, and nothing else."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_interleave.sql.admin import Database
from slurm_interleave.sql.rows import Lease, Member, Part, Row, Waiter
from slurm_interleave.sql.store import Store
from tests.sql.given import LEASE, MEMBER, PART, SLICE, WAITER, execute, handover, members, put


def problems(url: str, *rows: Row, epoch: int = 9) -> list[str]:
    with closing(Store(url)) as store:
        store.record(put(*rows), epoch)
    with Database(url) as opened:
        return opened.problems()


def test_a_database_in_use_has_no_problem(database: str) -> None:
    with closing(Store(database)) as store:
        store.record(members(), 0)
        for epoch in range(1, 6):
            store.record(handover(epoch), epoch)
            with Database(database) as opened:
                assert opened.problems() == []
        store.record({}, 5)


def test_rows_without_their_member_are_named(database: str) -> None:
    assert problems(database, WAITER, replace(LEASE, job_id="18"), replace(PART, job_id="19")) == [
        "job 17 of group grpo: a waiter without its member",
        "job 18 of group grpo: a lease without its member",
        "job 19 of group grpo: a part without its member",
    ]


def test_two_holders_of_one_device_are_named(database: str) -> None:
    other = {"job_id": "18", "group": "other"}
    rows = (MEMBER, PART, LEASE, Member(**other), Part(**other, node="n1", attempt="", devices=(1, 2)))

    assert problems(database, *rows, Lease(**other, epoch=2, phase="", requested=0.0, granted=0.0)) == [
        "device n1/1: held by job 17 of group grpo and job 18 of group other"
    ]


def test_epochs_that_cannot_be_are_named(database: str) -> None:
    other = Member("18", "grpo")

    found = problems(
        database, MEMBER, other, SLICE, replace(SLICE, epoch=12), LEASE, replace(LEASE, job_id="18"), epoch=0
    )

    assert set(found) == {
        "slice 12 is newer than the newest grant, 0",
        "job 17 of group grpo: its lease, 1, is newer than the newest grant, 0",
        "job 17 of group grpo: its lease, 1, has ended already",
        "job 18 of group grpo: its lease, 1, is newer than the newest grant, 0",
        "job 18 of group grpo: its lease, 1, has ended already",
        "job 18 of group grpo: its lease has the epoch of job 17 of group grpo, 1",
    }


def test_who_waits_for_what_he_holds_is_named(database: str) -> None:
    assert problems(database, MEMBER, LEASE, WAITER) == ["job 17 of group grpo: it waits for what it holds"]


def test_a_schema_that_was_changed_by_hand_is_named(database: str) -> None:
    Store(database).close()
    on = " ON slices" if database.startswith("mariadb") else ""
    execute(database, f"DROP INDEX slices_by_user{on}", "ALTER TABLE members ADD COLUMN extra INTEGER")

    with Database(database) as opened:
        found = opened.problems()

    assert len(found) == 2
    assert any("slices by user" in line for line in found)
    assert any("members.extra" in line for line in found)


@pytest.mark.parametrize("database", [pytest.param("mariadb", marks=pytest.mark.mariadb)], indirect=True)
def test_a_collation_that_mixes_names_up_is_named(database: str) -> None:
    Store(database).close()
    execute(database, "ALTER TABLE parts CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")

    with Database(database) as opened:
        [found] = [line for line in opened.problems() if "collation" in line]
    assert found == (
        "table parts has collation utf8mb4_general_ci, which mixes names up; it must have utf8mb4_nopad_bin"
    )


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "orchestrator.db"
    with closing(Store(f"sqlite:///{path}")) as store:
        store.record(put(*(replace(SLICE, epoch=n) for n in range(1, 400))), 400)
    damaged = bytearray(path.read_bytes())
    for page in range(20 * 4096, len(damaged) - 4096, 4096):
        damaged[page : page + 64] = b"x" * 64
    path.write_bytes(damaged)

    with Database(f"sqlite:///{path}") as opened:
        assert any("the file is damaged" in line for line in opened.problems())


def test_a_waiter_of_a_member_is_no_problem(database: str) -> None:
    assert problems(database, MEMBER, PART, Waiter("17", "grpo", 1, "rollout", 1.0)) == []
