"""The same store on SQLite, MariaDB and PostgreSQL."""

from __future__ import annotations

import contextlib
import threading
from contextlib import closing
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_interleave.client.core.errors import DatabaseFailed, Replaced
from slurm_interleave.client.core.states import SliceState
from slurm_interleave.sql.rows import Key, Lease, Member, Part, Row, Slice, Waiter
from slurm_interleave.sql.store import SliceFilter, Store
from tests.sql.given import EACH, LEASE, MEMBER, PART, SLICE, WAITER, drop, handover, members, put, slice_of


def in_store(store: Store) -> list[Row]:
    return [row for kind in map(type, EACH) for row in store.all(kind)]


def test_every_kind_of_row_comes_back_as_it_was_written(database: str) -> None:
    with closing(Store(database)) as store:
        store.record(put(*EACH), 1)

    with closing(Store(database)) as store:
        assert in_store(store) == list(EACH)
        assert (store.generation, store.epoch) == (2, 1)


def test_a_row_replaces_the_earlier_one_with_its_key_and_can_be_forgotten(store: Store) -> None:
    store.record(put(*EACH), 1)
    later = [replace(MEMBER, fault="gone"), replace(PART, devices=()), replace(LEASE, epoch=2)]

    store.record(put(*later), 2)
    assert [store.all(type(row)) for row in later] == [[row] for row in later]

    store.record(drop(*EACH), 2)
    assert in_store(store) == []


def test_a_batch_without_a_grant_leaves_the_epoch_and_still_counts(store: Store) -> None:
    store.record(put(MEMBER), 0)
    store.record(put(WAITER), 0)
    store.record({}, 0)

    assert store.all(Waiter) == [WAITER]


def test_names_that_differ_in_case_accent_or_a_space_are_different(store: Store) -> None:
    keys = [Key(job, group) for job in ("a", "A", "ä", "a ") for group in ("g", "G")]

    store.record(put(*(Member(*key) for key in keys), *(Part(*key, "n", "", ()) for key in keys)), 0)
    assert {Key(row.job_id, row.group) for row in store.all(Member)} == set(keys)
    assert len(store.all(Part)) == len(keys)

    store.record(drop(Member("A", "g")), 0)
    assert {Key(row.job_id, row.group) for row in store.all(Member)} == set(keys) - {Key("A", "g")}


def test_reports_tell_names_apart_that_differ_in_case(store: Store) -> None:
    store.record(put(slice_of(1, group="a"), slice_of(2, group="A")), 2)

    assert [[row.epoch for row in page] for page in store.slices(SliceFilter(groups=("A",)))] == [[2]]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=128),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=3, max_size=3),
    st.integers(-(2**63), 2**63 - 1),
)
def test_any_text_time_and_number_is_kept_to_the_last_bit(
    store: Store, text: str, times: list[float], number: int
) -> None:
    row = replace(
        SLICE, phase=text, requested=times[0], granted=times[1], ended=times[2], switch_bytes=number
    )
    fault = replace(MEMBER, fault=text)

    store.record(put(row, fault), store.epoch)

    assert store.all(Slice) == [row]
    assert store.all(Member) == [fault]


@pytest.mark.parametrize(
    "phase",
    ["'; DROP TABLE members; --", 'a"b`c\\', "100 %s %(x)s ?", "\\'", "rollout 🎲 ééé 日本", "\u202e"],
)
def test_a_phase_is_text_and_never_a_statement(store: Store, phase: str) -> None:
    store.record(put(replace(WAITER, phase=phase), MEMBER), 0)

    assert store.all(Waiter) == [replace(WAITER, phase=phase)]
    assert store.all(Member) == [MEMBER]


def test_a_zero_character_becomes_a_mark_and_a_label_that_is_too_long_is_cut(store: Store) -> None:
    store.record(put(replace(MEMBER, name="a\0b", account="é" * 1000, fault="x\0")), 0)

    [row] = store.all(Member)
    assert (row.name, row.account, row.fault) == ("a\ufffdb", "é" * 128, "x\ufffd")


def test_texts_far_over_64_kib_are_kept(store: Store) -> None:
    nodes = tuple(f"node-{i:06}" for i in range(20_000))
    row = replace(MEMBER, nodes=nodes, fault="🎲" * 100_000)

    store.record(put(row), 0)

    assert store.all(Member) == [row]


def test_a_batch_of_ten_thousand_rows_is_one_batch(store: Store) -> None:
    given = [Member(str(i), "grpo", user="alice", name="x" * 200) for i in range(10_000)]

    store.record(put(*given), 7)

    assert {row.job_id for row in store.all(Member)} == {row.job_id for row in given}
    assert store.epoch == 7


def test_what_one_row_spoils_is_not_written_at_all_and_nothing_is_written_after_it(database: str) -> None:
    with closing(Store(database)) as store:
        store.record(put(MEMBER), 0)
        with pytest.raises(
            DatabaseFailed, match=r"database .*; what is not recorded was not answered"
        ) as caught:
            store.record(put(LEASE, replace(WAITER, seq=2**70)), 1)
        assert "\n" not in str(caught.value)
        with pytest.raises(DatabaseFailed):
            store.record(put(LEASE), 1)

    with closing(Store(database)) as store:
        assert in_store(store) == [MEMBER]
        assert store.epoch == 0


def test_an_older_instance_is_told_that_it_was_replaced_and_changes_nothing(database: str) -> None:
    with closing(Store(database)) as old, closing(Store(database)) as new:
        new.record(put(MEMBER), 1)
        for _ in range(2):
            with pytest.raises(Replaced):
                old.record(drop(MEMBER) | put(LEASE), 1)

        new.record(put(WAITER), 2)
        assert in_store(new) == [MEMBER, WAITER]


def test_of_many_that_start_at_once_on_an_empty_database_the_last_one_alone_may_write(database: str) -> None:
    stores: list[Store] = []
    threads = [threading.Thread(target=lambda: stores.append(Store(database))) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(store.generation for store in stores) == [1, 2, 3, 4, 5]
    for store in stores:
        if store.generation == 5:
            store.record(put(MEMBER), 0)
        else:
            with pytest.raises(Replaced):
                store.record(put(MEMBER), 0)
        store.close()


def test_a_takeover_in_the_middle_of_a_stream_of_batches_stops_it_and_loses_none(database: str) -> None:
    old = Store(database)
    old.record(members(), 0)
    under_way, outcome = threading.Event(), []

    def write() -> None:
        with contextlib.suppress(Replaced):
            for epoch in range(1, 1_000_000):
                old.record(handover(epoch), epoch)
                outcome.append(epoch)
                under_way.set()

    thread = threading.Thread(target=write)
    thread.start()
    under_way.wait()
    with closing(Store(database)) as new:
        thread.join()
        assert new.epoch == outcome[-1] < 999_999
        assert [lease.epoch for lease in new.all(Lease)] == [outcome[-1]]
    old.close()


def test_a_reader_sees_a_batch_as_a_whole_or_not_at_all(store: Store) -> None:
    store.record(members(), 0)
    done = threading.Event()

    def write() -> None:
        for epoch in range(1, 200):
            store.record(handover(epoch), epoch)
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    seen = set()
    while not done.is_set():
        operations = {part.operation.partition("-")[2] for part in store.all(Part)}
        assert len(operations) <= 1
        seen |= operations
    thread.join()
    assert len(seen) > 1


def test_the_last_yield_of_each_live_member_is_known_after_a_restart(store: Store) -> None:
    ended = [
        slice_of(1),
        slice_of(2, ended=0.5),  # the clock was set back
        slice_of(3, state=SliceState.REVOKED),
        slice_of(4, group="other"),
        slice_of(5, job_id="18"),
        slice_of(6, job_id="gone"),
    ]
    store.record(put(MEMBER, Member("18", "grpo"), Member("19", "grpo"), *ended), 6)

    assert store.last_yields() == {Key("17", "grpo"): 2, Key("18", "grpo"): 5}
