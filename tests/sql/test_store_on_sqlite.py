"""The orchestrator's memory on a real SQLite file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_interleave.client.core.errors import ConfigError, DatabaseFailed, Replaced
from slurm_interleave.client.core.states import SliceState
from slurm_interleave.sql import rows
from slurm_interleave.sql.store import PAGE, RowId, SliceFilter, Store, row_id
from slurm_interleave.sql.tables import metadata
from tests.sql.given_rows import KINDS, any_rows, ended_slice
from tests.sql.on_sqlite import put, store, url

__all__ = ["store", "url"]


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


@pytest.mark.parametrize(
    "bad", ["oracle", "sqlite:////proc/none/orchestrator.db", "nonesuch://host/db", "sqlite:////etc/hostname"]
)
def test_a_database_that_cannot_be_used_is_named(bad: str) -> None:
    with pytest.raises(ConfigError, match="database"):
        Store(bad)
