"""Sums by member and day: what SQL keeps is what the slices add up to, on each kind of database."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import pytest
import sqlalchemy as sa

from slurm_interleave.client.core.states import SliceState
from slurm_interleave.sql.admin import Database
from slurm_interleave.sql.days import beginning, date_of, day_of, summed
from slurm_interleave.sql.engine import open_engine
from slurm_interleave.sql.rows import Day, Slice
from slurm_interleave.sql.slices import PAGE, SliceFilter
from slurm_interleave.sql.store import Store
from slurm_interleave.sql.tables import days
from tests.sql.given import put, slice_of
from tests.sql.test_migrations import to

DAY = 86400.0
NOON = beginning(20260310) + DAY / 2
SUMS = ("turns", "switches", "faults", "held_s", "waited_s", "switch_bytes", "held_device_s")
SUMS += ("waited_device_s", "exclusive_device_s", "occupied_device_s", "overhead_s", "snapshot_s")
SUMS += ("foretold", "expected_s", "missed_s")


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    with closing(Store(database)) as opened:
        yield opened


def turn(epoch: int, ended: float, **more: Any) -> Slice:
    held, waited = more.pop("held", 60.0), more.pop("waited", 10.0)
    times = {"requested": ended - held - waited, "granted": ended - held, "ended": ended}
    return slice_of(epoch, **{"switch_bytes": 2**30, "share": 1.0, "off_s": 30.0, **times, **more})


def history(seed: int = 1, count: int = 300) -> list[Slice]:
    """Turns of 6 jobs over five days."""
    dice = random.Random(seed)  # noqa: S311
    ends = sorted(NOON + dice.uniform(-2.5, 2.5) * DAY for _ in range(count))
    return [
        turn(
            number,
            end,
            job_id=f"j{number % 6}",
            group=f"g{number % 2}",
            user=f"u{number % 3}",
            uid=1000 + number % 3,
            account=f"a{number % 2}",
            held=float(dice.randrange(1, 4000)),
            waited=float(dice.randrange(500)),
            state=dice.choice([SliceState.YIELDED, SliceState.FAULTED]),
            expected_s=dice.choice([-1.0, 0.0, 120.5]),
        )
        for number, end in enumerate(ends, 1)
    ]


def read(store: Store, **wanted: Any) -> list[Day]:
    return [day for page in store.days(SliceFilter(**wanted)) for day in page]


def whole(sums: Iterable[Day]) -> dict[tuple[int, str], dict[str, float]]:
    """Return the sums by day and job, however many parts they came in."""
    found: dict[tuple[int, str], dict[str, float]] = {}
    for day in sums:
        into = found.setdefault((day.day, day.job_id), dict.fromkeys((*SUMS, "max_wait_s", "ended"), 0.0))
        into.update({name: into[name] + getattr(day, name) for name in SUMS})
        into.update({name: max(into[name], getattr(day, name)) for name in ("max_wait_s", "ended")})
    return found


def test_the_turns_of_a_day_add_up_and_the_longest_wait_and_last_words_stay(store: Store) -> None:
    first = turn(1, NOON, held=60, waited=10, phase="rollout")
    second = turn(2, NOON + 200, held=40, waited=30, phase="train", state=SliceState.FAULTED, comment="lost")
    store.record(put(first), 1)
    store.record(put(second), 2)

    [day] = read(store)

    assert (day.day, day.turns, day.switches, day.faults) == (20260310, 2, 2, 1)
    assert (day.held_s, day.waited_s, day.max_wait_s) == (100, 40, 30)
    assert (day.requested, day.granted, day.ended) == (first.requested, first.granted, second.ended)
    assert (day.phase, day.state, day.comment, day.epoch) == ("train", SliceState.FAULTED, "lost", 2)
    # 2 devices, each shared by two jobs: 2 x (30 + 60) + 2 x (30 + 40), and (30 + 10 + 60) + (30 + 30 + 40).
    assert (day.held_device_s, day.exclusive_device_s, day.occupied_device_s) == (200, 320, 200)


def test_what_was_told_of_waits_adds_up_with_what_it_missed_whether_longer_or_shorter(store: Store) -> None:
    told = [turn(1, NOON, waited=10, expected_s=4.0), turn(2, NOON + 100, waited=20, expected_s=50.0)]
    told += [turn(3, NOON + 200, waited=5, expected_s=0.0), turn(4, NOON + 300, waited=900)]
    for row in told:
        store.record(put(row), row.epoch)

    [day] = read(store)

    # Nothing was told to the fourth.
    assert (day.foretold, day.expected_s, day.missed_s) == (3, 54, 6 + 30 + 5)
    assert [row.expected_s for page in store.slices(SliceFilter()) for row in page] == [4, 50, 0, -1]


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"users": ("u1",)},
        {"groups": ("g1",), "accounts": ("a1",)},
        {"job_ids": ("j2", "j3")},
        {"uid": 1002},
        {"accounts": ("nobody",)},
        {"partitions": ("interleave",)},
        {"nodes": ("n1",)},
        {"nodes": ("n2",)},
        {"states": ("FAULTED",)},
        {"start": NOON - DAY},
        {"end": NOON + DAY},
        {"start": NOON - DAY, "end": NOON + 0.8 * DAY, "users": ("u0", "u2")},
        {"start": beginning(20260309), "end": beginning(20260311)},
        {"start": NOON, "end": NOON + 3600},
        {"start": NOON + 10 * DAY},
    ],
    ids=str,
)
def test_what_is_kept_and_read_is_what_the_slices_add_up_to(store: Store, wanted: dict[str, Any]) -> None:
    given = history()
    store.record(put(*given), len(given))

    expected = whole(summed(row for row in given if SliceFilter(**wanted).matches(row)))

    got = whole(read(store, **wanted))
    assert got.keys() == expected.keys()
    assert all(got[key] == pytest.approx(expected[key]) for key in got)


def test_a_turn_that_ends_as_a_day_begins_is_counted_once(store: Store) -> None:
    begins = beginning(20260310)
    store.record(put(turn(1, begins), turn(2, begins - 3e-7), turn(3, begins + 1e-6)), 3)

    for wanted in ({"end": NOON}, {"start": begins - 3600}, {"start": begins - 3600, "end": NOON}, {}):
        assert sum(day.turns for day in read(store, **wanted)) == 3


def test_days_come_in_pages(store: Store) -> None:
    given = [turn(n, NOON + n, job_id=f"j{n}") for n in range(1, PAGE + 11)]
    store.record(put(*given), PAGE + 10)

    assert [len(page) for page in store.days(SliceFilter())] == [PAGE, 10]
    assert len({day.job_id for day in read(store)}) == PAGE + 10


def test_an_upgrade_adds_up_what_there_was(database: str) -> None:
    given = history()
    to(database, "0005")
    engine = open_engine(database)
    table = sa.Table("slices", sa.MetaData(), autoload_with=engine)
    texts = {"nodes": "n1", "devices": "n1/0,n1/1"}
    with engine.begin() as db:
        for row in given:
            values = {**vars(row), **texts, "state": row.state.value}
            db.execute(sa.insert(table), {name: values[name] for name in table.columns.keys()})  # noqa: SIM118
    engine.dispose()

    with Database(database) as opened:
        opened.upgrade()
    with closing(Store(database)) as store:
        got = whole(read(store))

    # What was shared is not known of them, nor what was told.
    unknown = {"share": 0.0, "off_s": 0.0, "expected_s": -1.0}
    expected = whole(summed(slice_of(**{**vars(row), **unknown}) for row in given))
    assert got.keys() == expected.keys()
    assert all(got[key] == pytest.approx(expected[key]) for key in got)


def test_forgetting_slices_leaves_their_sums(store: Store) -> None:
    given = history()
    store.record(put(*given), len(given))
    before = whole(read(store))

    assert sum(store.prune(NOON + 10 * DAY)) == len(given)

    assert whole(read(store)) == before


def test_values_without_measure_end_no_database(store: Store) -> None:
    wild = [
        turn(n, 1e300, held=1e299, waited=1e298, share=1e9, switch_bytes=2**62, off_s=1e300) for n in (1, 2)
    ]
    store.record(put(*wild), 2)

    [day] = read(store)

    assert day.turns == 2
    assert day.switch_bytes == 2.0**63


def test_a_day_is_one_of_the_local_calendar(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = 1_760_000_000.0  # 2025-10-09 08:53 UTC
    with monkeypatch.context() as patch:
        for zone, date in (
            ("UTC0", 20251009),
            ("PST8PDT", 20251009),
            ("XXX10", 20251008),
            ("YYY-16", 20251010),
        ):
            patch.setenv("TZ", zone)
            time.tzset()
            assert date_of(moment) == date
            assert beginning(date) <= moment < beginning(date) + DAY
    time.tzset()


def test_each_column_of_a_day_is_written(store: Store) -> None:
    store.record(put(turn(1, NOON)), 1)

    [day] = read(store)

    assert day == day_of(turn(1, NOON))
    assert set(day._fields) == set(days.columns.keys())
