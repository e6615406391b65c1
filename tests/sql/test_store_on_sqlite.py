"""The orchestrator's memory on a real SQLite file."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_interleave.client.core.errors import ConfigError, DatabaseFailed, Replaced
from slurm_interleave.client.core.states import SliceState
from slurm_interleave.sql import engine, rows
from slurm_interleave.sql.store import PAGE, Locked, RowId, SliceFilter, Store, row_id
from slurm_interleave.sql.tables import metadata
from tests.sql.given_rows import KINDS, any_rows, ended_slice


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/orchestrator.db"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = Store(url)
    yield opened
    opened.close()


def put(store: Store, *put_rows: rows.Row, epoch: int | None = None) -> None:
    store.record({row_id(row): row for row in put_rows}, store.epoch if epoch is None else epoch)


def everything(store: Store) -> dict[RowId, rows.Row]:
    return {row_id(row): row for kind in KINDS for row in store.all(kind)}


def unique_epochs(given_rows: Iterable[rows.Row]) -> dict[RowId, rows.Row]:
    """No two leases have one epoch."""
    leases = {row.epoch: row for row in given_rows if isinstance(row, rows.Lease)}
    return {
        row_id(row): row for row in given_rows if not isinstance(row, rows.Lease) or leases[row.epoch] is row
    }


@pytest.fixture(scope="module")
def one_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('db')}/orchestrator.db"


@settings(max_examples=30, deadline=None)
@given(first=any_rows, second=any_rows, data=st.data())
def test_what_is_recorded_is_what_a_restart_finds(
    one_url: str, first: list[rows.Row], second: list[rows.Row], data: st.DataObject
) -> None:
    store = Store(one_url)
    store.record(dict.fromkeys(everything(store)), store.epoch)
    expected = unique_epochs(first)
    store.record(dict(expected), store.epoch + 1)
    taken = {row.epoch for row in expected.values() if isinstance(row, rows.Lease)}
    changes: dict[RowId, rows.Row | None] = {
        key: row
        for key, row in unique_epochs(second).items()
        if not isinstance(row, rows.Lease) or row.epoch not in taken
    }
    changes |= {key: None for key in expected if data.draw(st.booleans())}
    store.record(changes, store.epoch + 1)
    store.close()

    again = Store(one_url)
    left = {**expected, **changes}
    assert everything(again) == {key: row for key, row in left.items() if row is not None}
    assert again.epoch == store.epoch
    again.close()


def test_the_newest_instance_alone_may_write(store: Store, url: str) -> None:
    waiter = rows.Waiter("17", "demo", 1, "train", 5.0)
    put(store, waiter, epoch=3)
    newer = Store(url)
    assert newer.generation == store.generation + 1
    assert newer.epoch == 3

    with pytest.raises(Replaced, match="another orchestrator has started"):
        put(store, rows.Waiter("18", "demo", 2, "", 6.0), epoch=4)
    with pytest.raises(Replaced):
        store.record({row_id(waiter): None}, 3)

    put(newer, rows.Waiter("19", "demo", 3, "", 7.0), epoch=4)
    assert {row.job_id for row in newer.all(rows.Waiter)} == {"17", "19"}
    newer.close()


def test_a_batch_that_fails_in_the_middle_changes_nothing(store: Store, url: str) -> None:
    put(store, rows.Lease("17", "demo", 1, "", 1.0, 2.0), epoch=1)

    with pytest.raises(DatabaseFailed, match="start again when the database is back"):
        put(
            store,
            rows.Waiter("18", "demo", 2, "", 6.0),
            rows.Waiter("19", "demo", 2**70, "", 6.0),  # more than a column holds
            epoch=2,
        )

    again = Store(url)
    assert again.epoch == 1
    assert [type(row) for row in everything(again).values()] == [rows.Lease]
    again.close()


def test_the_last_yield_of_each_live_member_is_known(store: Store) -> None:
    members = [rows.Member(job, "demo", nodes=("n1",)) for job in ("17", "18")]
    ended = [
        ended_slice(1),
        ended_slice(2),
        ended_slice(3, state=SliceState.JOB_ENDED),
        ended_slice(4, job_id="19"),
        ended_slice(5, group="other"),
    ]
    put(store, *members, *ended)

    assert store.last_yields() == {rows.Key("17", "demo"): 2}


def test_slices_come_page_by_page_in_order(store: Store) -> None:
    put(store, *(ended_slice(epoch) for epoch in range(1, PAGE * 2 + 8)))

    pages = [[row.epoch for row in page] for page in store.slices(SliceFilter())]

    assert all(len(page) <= PAGE for page in pages)
    assert [epoch for page in pages for epoch in page] == list(range(1, PAGE * 2 + 8))


filters = st.builds(
    SliceFilter,
    job_ids=st.sets(st.sampled_from("abc")).map(tuple),
    users=st.sets(st.sampled_from(["alice", "bob"])).map(tuple),
    groups=st.sets(st.sampled_from(["g", "h", "nonesuch"])).map(tuple),
    states=st.sets(st.sampled_from(["YIELDED", "JOB_ENDED", "RUNNING", "NONESUCH"])).map(tuple),
    start=st.sampled_from([0.0, 3.0, 7.5, 100.0]),
    end=st.sampled_from([0.0, 3.0, 7.5, 100.0]),
    uid=st.sampled_from([None, 1000, 1001]),
)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = Store(f"sqlite:///{tmp_path_factory.mktemp('db')}/orchestrator.db")
    states = (SliceState.YIELDED, SliceState.JOB_ENDED)
    put(
        store,
        *(
            ended_slice(
                number + 1,
                job_id="abc"[number % 3],
                group="gh"[number % 2],
                user=("alice", "bob")[number // 2 % 2],
                uid=1000 + number // 2 % 2,
                state=states[number // 4 % 2],
            )
            for number in range(24)
        ),
    )
    yield store
    store.close()


@settings(max_examples=150, deadline=None)
@given(wanted=filters)
def test_a_filter_in_sql_is_the_same_as_outside_it(history: Store, wanted: SliceFilter) -> None:
    every = [row for page in history.slices(SliceFilter()) for row in page]

    found = {row.epoch for page in history.slices(wanted) for row in page}

    assert found == {row.epoch for row in every if wanted.matches(row)}


def test_the_migrations_make_the_tables(store: Store) -> None:
    with store._engine.connect() as db:
        context = MigrationContext.configure(db, opts={"compare_type": True, "target_metadata": metadata})
        assert compare_metadata(context, metadata) == []


def test_a_commit_is_on_disk_before_it_is_answered(store: Store) -> None:
    with store._engine.connect() as db:
        assert db.scalar(sa.text("PRAGMA journal_mode")) == "wal"
        assert db.scalar(sa.text("PRAGMA synchronous")) == 2  # FULL


_WRITER = """
import sys
import threading
from slurm_interleave.sql import rows
from slurm_interleave.sql.store import Store, row_id
store = Store(sys.argv[1])
for epoch in range(1, 100_000):
    lease = rows.Lease("17", "demo", epoch, f"phase {epoch}", 1.0, 2.0)
    waiter = rows.Waiter("18", "demo", epoch, f"phase {epoch}", 1.0)
    store.record({row_id(row): row for row in (lease, waiter)}, epoch)
    print(epoch, flush=True)
"""


@pytest.mark.parametrize("after", [1, 25, 60])
def test_killed_in_the_middle_it_has_all_that_was_acknowledged_and_no_half(url: str, after: int) -> None:
    argv = [sys.executable, "-c", _WRITER, url]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        seen = 0
        while seen < after:
            seen = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        seen = int(([str(seen), *writer.stdout.read().split()])[-1])

    store = Store(url)
    assert store.epoch >= seen
    [lease], [waiter] = store.all(rows.Lease), store.all(rows.Waiter)
    assert lease.epoch == waiter.seq == store.epoch
    store.close()


@pytest.mark.parametrize(
    "bad", ["oracle", "sqlite:////proc/none/orchestrator.db", "nonesuch://host/db", "sqlite:////etc/hostname"]
)
def test_a_database_that_cannot_be_used_is_named(bad: str) -> None:
    with pytest.raises(ConfigError, match="database"):
        Store(bad)


def test_who_may_not_wait_for_another_writer_is_told_at_once_and_may_write_later(
    store: Store, url: str
) -> None:
    member = rows.Member("a", "g")
    change: dict[RowId, rows.Row | None] = {row_id(member): member}
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for _ in range(2):
            with pytest.raises(Locked):
                store.record(change, 1, may_wait=False)
        assert (store.all(rows.Member), store.epoch) == ([], 0)
        other.execute("COMMIT")

    store.record(change, 1, may_wait=False)

    assert (store.all(rows.Member), store.epoch) == ([member], 1)


def test_who_may_wait_for_another_writer_writes_after_it(store: Store, url: str) -> None:
    path = url.removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Locked):
            store.record({}, 1, may_wait=False)
        ending = threading.Timer(0.1, other.execute, ["COMMIT"])
        ending.start()

        store.record({}, 1)

        ending.join()
    assert store.epoch == 1


def test_the_log_has_its_full_size_from_the_start_and_the_file_does_not(store: Store, url: str) -> None:
    path = Path(url.removeprefix("sqlite:///"))
    log = path.with_name(path.name + "-wal")
    full = log.stat().st_size

    for epoch in range(1, 301):
        put(store, rows.Member(f"j{epoch}", "g"), epoch=epoch)

    assert log.stat().st_size == full > 4000 * 4096
    assert path.stat().st_size < full / 10
    assert len(store.all(rows.Member)) == 300


def test_a_log_that_a_crash_left_is_read_and_not_filled_again(url: str) -> None:
    crashed = f"""
import os
from slurm_interleave.sql import rows
from slurm_interleave.sql.store import Store, row_id
store, member = Store({url!r}), rows.Member("a", "g")
store.record({{row_id(member): member}}, 7)
os._exit(9)
"""
    subprocess.run([sys.executable, "-c", crashed], check=False)
    path = url.removeprefix("sqlite:///")
    before = Path(path + "-wal").stat()

    with contextlib.closing(Store(url)) as store:
        assert (store.all(rows.Member), store.epoch) == ([rows.Member("a", "g")], 7)
        assert Path(path + "-wal").stat().st_ino == before.st_ino
        assert Path(path + "-wal").stat().st_size == before.st_size
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_disk_without_room_for_the_log_is_no_reason_to_stop(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.closing(Store(url)) as store:
        put(store, rows.Member("a", "g"))
    monkeypatch.setattr(engine, "_PRAGMAS", (*engine._PRAGMAS, "max_page_count=500"))

    with contextlib.closing(Store(url)) as store:
        put(store, rows.Member("b", "g"))

        assert len(store.all(rows.Member)) == 2
