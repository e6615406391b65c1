"""The newest turns of each workload, and of no more than were asked for."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain

import pytest

from slurm_interleave.orchestrator.pairing.profile import workload_of
from slurm_interleave.sql.rows import Slice
from slurm_interleave.sql.slices import PAGE
from slurm_interleave.sql.store import Store
from tests.sql.given import put, slice_of

# Each changes one thing that tells workloads apart, or nothing; two that a user gave one name are one.
KINDS = (
    {},
    {"devices": ("n1/2", "n1/3")},
    {"nodes": ("n7",), "devices": ("n7/0", "n7/1")},
    {"devices": ("n1/0",)},
    {"nodes": ("n1", "n2")},
    {"account": "chemistry"},
    {"account": ""},
    {"name": ""},
    {"name": "", "job_id": "18"},
    {"job_id": "18", "user": "bob", "group": "other"},
    {"name": "18"},
    {"name": "Train"},
    {"role": "sampler"},
    {"role": ""},
    {"profile": "math"},
    {"profile": "math", "account": "chemistry", "name": "x", "nodes": ("n1", "n2")},
    {"profile": "code"},
)


def given(count: int) -> list[Slice]:
    """Slices of all kinds by turns, two of which end in each second."""
    return [slice_of(n, ended=n // 2 + 1.0, **KINDS[n % len(KINDS)]) for n in range(1, count + 1)]  # type: ignore[arg-type]


def newest(store: Store, start: float = 0.0, each: int = 200, most: int = 10_000) -> list[Slice]:
    return list(chain.from_iterable(store.newest(start, each, most)))


@pytest.mark.parametrize("start", [0.0, 40.0])
def test_each_workload_has_its_newest_turns_in_the_order_of_their_ends(store: Store, start: float) -> None:
    rows = given(300)
    store.record(put(*rows), 300)
    by_workload: defaultdict[str, list[Slice]] = defaultdict(list)
    for row in rows:
        if row.ended > start:
            by_workload[workload_of(row)].append(row)
    expected = [row for own in by_workload.values() for row in own[-7:]]

    assert newest(store, start, each=7) == sorted(expected, key=lambda row: (row.ended, row.epoch))


def test_of_too_many_the_newest_are_read_a_page_at_a_time(store: Store) -> None:
    count = 2 * PAGE + 100
    store.record(put(*given(count)), count)

    pages = list(store.newest(0.0, count, 2 * PAGE + 1))

    assert [len(page) for page in pages] == [PAGE, PAGE, 1]
    assert [row.epoch for row in chain.from_iterable(pages)] == list(range(100, count + 1))


def test_where_nothing_has_ended_there_is_nothing(store: Store) -> None:
    assert newest(store) == []
