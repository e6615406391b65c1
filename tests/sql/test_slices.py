"""Reports page through the slices; old ones are forgotten in small steps."""

from __future__ import annotations

from itertools import chain

import pytest

from slurm_interleave.sql import slices
from slurm_interleave.sql.rows import Slice
from slurm_interleave.sql.slices import CHUNK, PAGE, SliceFilter
from slurm_interleave.sql.store import Store
from tests.sql.given import MEMBER, put, slice_of

COUNT = 3 * PAGE + 7
ALICE = {"job_id": "17", "group": "a", "user": "alice", "uid": 1}
BOB = {"job_id": "18", "group": "b", "user": "bob", "uid": 2}


@pytest.fixture
def filled(store: Store) -> Store:
    """Slices of two jobs by turns, two of which end in each second."""
    given = [slice_of(n, ended=n // 2 + 1.0, **(ALICE if n % 2 else BOB)) for n in range(1, COUNT + 1)]
    store.record(put(*given), COUNT)
    return store


def epochs(store: Store, wanted: SliceFilter) -> list[int]:
    return [row.epoch for row in chain.from_iterable(store.slices(wanted))]


@pytest.mark.parametrize(
    "wanted",
    [
        SliceFilter(),
        SliceFilter(job_ids=("17",)),
        SliceFilter(job_ids=("17", "18", "17", "none")),
        SliceFilter(users=("bob", "alice")),
        SliceFilter(groups=("b",), users=("bob",), job_ids=("18", "17")),
        SliceFilter(groups=("a", "b"), start=COUNT / 4),
        SliceFilter(start=COUNT / 4, end=1.26, uid=2),
        SliceFilter(end=1.0),
        SliceFilter(states=("YIELDED",), users=("alice",)),
        SliceFilter(states=("FAULTED", "unheard-of")),
        SliceFilter(groups=("'; DROP TABLE slices; --",)),
    ],
)
def test_a_report_has_each_slice_that_it_wants_once_in_order(filled: Store, wanted: SliceFilter) -> None:
    expected = [row.epoch for row in filled.all(Slice) if wanted.matches(row)]

    assert epochs(filled, wanted) == sorted(expected)


def test_a_page_holds_no_more_than_its_size_and_is_read_when_it_is_asked_for(filled: Store) -> None:
    pages = filled.slices(SliceFilter())
    first = next(pages)

    filled.record(put(slice_of(COUNT + 1, ended=COUNT + 1.0)), COUNT + 1)

    sizes = [len(first), *map(len, pages)]
    assert max(sizes) == PAGE
    assert sum(sizes) == COUNT + 1


def test_a_report_that_is_left_in_the_middle_holds_nothing(filled: Store) -> None:
    pages = filled.slices(SliceFilter())
    next(pages)
    del pages

    assert sum(filled.prune(1e12)) == COUNT


def test_slices_of_named_jobs_come_by_grant_and_others_by_end(store: Store) -> None:
    store.record(put(slice_of(1, ended=9.0), slice_of(2, ended=5.0), slice_of(3, ended=7.0)), 3)

    assert epochs(store, SliceFilter(job_ids=("17",))) == [1, 2, 3]
    assert epochs(store, SliceFilter()) == [2, 3, 1]
    assert epochs(store, SliceFilter(groups=("grpo",))) == [2, 3, 1]


def test_what_ended_before_a_moment_is_forgotten_in_small_steps_and_the_rest_kept(filled: Store) -> None:
    moment = 601.0
    old = [row.epoch for row in filled.all(Slice) if row.ended < moment]
    assert slices.count_before(filled._engine, moment) == len(old)

    steps = list(filled.prune(moment))

    assert sum(steps) == len(old)
    assert max(steps) == CHUNK
    assert epochs(filled, SliceFilter()) == list(range(len(old) + 1, COUNT + 1))
    assert list(filled.prune(moment)) == []


def test_the_orchestrator_writes_between_the_steps_of_a_pruning(filled: Store) -> None:
    for step, _ in enumerate(filled.prune(1e12)):
        filled.record(put(MEMBER), COUNT + step)

    assert filled.all(Slice) == []
