"""A history of a million slices on SQLite: reports stay quick and small, and so does a restart."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from slurm_interleave.sql.engine import open_engine
from slurm_interleave.sql.rows import Key, Member, Part
from slurm_interleave.sql.slices import SliceFilter
from slurm_interleave.sql.store import Store
from slurm_interleave.sql.tables import slices
from tests.sql.given import put, slice_of

COUNT = 1_000_000
TODAY = 10_000
GROUPS, MEMBERS = 1000, 10
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a database in which slice n ended at second n; member n % 10,000 had it."""
    url = f"sqlite:///{tmp_path_factory.mktemp('million')}/orchestrator.db"
    with closing(Store(url)) as store:
        keys = [Key(f"j{n}", f"g{n % GROUPS}") for n in range(GROUPS * MEMBERS)]
        parts = (Part(*key, "n1", "1", (0,)) for key in keys)
        store.record(put(slice_of(1), *(Member(*key) for key in keys), *parts), COUNT)
    engine = open_engine(url)
    with engine.begin() as db:
        db.execute(sa.text("DROP INDEX slices_by_user"))  # no test here needs it
        db.execute(copies())
    engine.dispose()
    yield url
    Path(engine.url.database or "").unlink()


def copies() -> sa.Insert:
    """Return the statement that copies the first slice for all others."""
    first = sa.select(sa.literal(2).label("n")).cte("numbers", recursive=True)
    numbers = first.union_all(sa.select(first.c.n + 1).where(first.c.n < COUNT))
    model, n = slices.alias(), numbers.c.n
    values: dict[str, sa.ColumnElement[Any]] = {c.name: model.c[c.name] for c in slices.columns}
    values |= {"epoch": n, "ended": n}
    values["job_id"] = sa.literal("j").concat(sa.cast(n % (GROUPS * MEMBERS), sa.String))
    values["group"] = sa.literal("g").concat(sa.cast(n % GROUPS, sa.String))
    copied = sa.select(*values.values()).select_from(model.join(numbers, model.c.epoch == 1))
    return sa.insert(slices).from_select(list(values), copied)


def test_the_default_report_takes_less_than_a_second_and_200_mib(history: str) -> None:
    count, took, mib = asked(history, TODAY, "store")

    assert count == TODAY
    assert took < 1.0
    assert mib < 200


def test_what_the_orchestrator_sends_takes_no_more_memory_for_ten_times_as_many(history: str) -> None:
    few, _, little = asked(history, TODAY, "arbiter")
    many, _, much = asked(history, 10 * TODAY, "arbiter")

    assert (few, many) == (TODAY, 10 * TODAY)
    assert much < little + 20


def asked(history: str, last: int, reader: str) -> tuple[float, float, float]:
    """Return how many of the *last* slices another process got, in which time, with which peak of memory."""
    argv = [sys.executable, "-m", "tests.sql.million", history, str(COUNT - last), reader]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    count, took, mib = map(float, done.stdout.split())
    return count, took, mib


def test_a_report_of_everything_has_its_first_page_at_once(history: str) -> None:
    with closing(Store(history)) as store:
        began = time.process_time()
        next(store.slices(SliceFilter()))
        next(store.slices(SliceFilter(job_ids=("j17",))))
        next(store.slices(SliceFilter(groups=("g17",), start=COUNT / 2)))

        assert time.process_time() - began < 0.1


def test_a_restart_with_a_thousand_groups_of_ten_loads_in_less_than_a_second(history: str) -> None:
    began = time.process_time()
    with closing(Store(history)) as store:
        loaded = len(store.all(Member)), len(store.all(Part)), len(store.last_yields())

        assert time.process_time() - began < 1.0
    assert loaded == (GROUPS * MEMBERS,) * 3
