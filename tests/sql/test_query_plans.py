"""The queries that grow with the history run along an index, on each kind of database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import Any

import pytest
import sqlalchemy as sa

from slurm_interleave.sql.engine import open_engine
from slurm_interleave.sql.rows import Member
from slurm_interleave.sql.slices import BY_END, PAGE, Order, SliceFilter, after, plan
from slurm_interleave.sql.store import Store, last_yields_query
from tests.sql.conftest import KINDS, Servers
from tests.sql.given import put, slice_of

COUNT = 8_000
LATE = SliceFilter(start=COUNT - 2000.0)


@pytest.fixture(scope="module", params=KINDS)
def engine(
    request: pytest.FixtureRequest, servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[sa.Engine]:
    """A database with a history of 100 jobs, and its planner's statistics."""
    url = servers.fresh(request.param, tmp_path_factory.mktemp("plans"))
    with closing(Store(url)) as store:
        names = ({"job_id": f"j{n % 100}", "group": f"g{n % 50}", "user": f"u{n % 20}"} for n in range(COUNT))
        given = (slice_of(n + 1, **who) for n, who in enumerate(names))
        while some := list(islice(given, 5000)):
            store.record(put(*some), some[-1].epoch)
        store.record(put(*(Member(f"j{n}", f"g{n % 50}") for n in range(100))), COUNT)
    engine = open_engine(url)
    with engine.begin() as db:
        db.exec_driver_sql("ANALYZE TABLE slices, members" if engine.dialect.name == "mariadb" else "ANALYZE")
    yield engine
    engine.dispose()


def explain(db: sa.Connection, query: sa.Select[Any]) -> str:
    """Return the plan of *query*, in the database's words."""
    compiled: Any = query.compile(db.engine, compile_kwargs={"render_postcompile": True})
    values = [compiled.params[name] for name in compiled.positiontup]
    processed = [
        process(value) if (process := compiled._bind_processors.get(name)) else value
        for name, value in zip(compiled.positiontup, values, strict=True)
    ]
    verb = {"sqlite": "EXPLAIN QUERY PLAN", "mariadb": "EXPLAIN FORMAT=JSON", "postgresql": "EXPLAIN"}
    found = db.exec_driver_sql(f"{verb[db.dialect.name]} {compiled}", tuple(processed)).all()
    return "\n".join(str(row[-1]) for row in found)


def assert_along(engine: sa.Engine, query: sa.Select[Any], index: str) -> None:
    """The plan uses *index* to find the slices and, but for the few that PostgreSQL sorts, their order."""
    with engine.connect() as db:
        text = explain(db, query)
    bad: tuple[str, ...] = ("SCAN slices", "TEMP B-TREE", "Seq Scan on slices")
    if engine.dialect.name == "mariadb":
        [table] = [t for t in _tables(json.loads(text)) if t["table_name"] == "slices"]
        assert table["access_type"] in ("range", "ref"), text
        assert table["key"] == index, text
        bad = ("filesort", "temporary_table")
    assert index in text, text
    assert not [word for word in bad if word in text], text


def _tables(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        if "table_name" in node:
            yield node
        for value in node.values():
            yield from _tables(value)
    elif isinstance(node, list):
        for value in node:
            yield from _tables(value)


def first_and_next(wanted: SliceFilter) -> list[sa.Select[Any]]:
    """Return the queries of the first page of a report and of one in its middle."""
    order: Order
    order, [query, *_] = plan(wanted)
    last = slice_of(COUNT - 1900)
    return [query.limit(PAGE), query.where(after(order, last)).limit(PAGE)]


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (SliceFilter(job_ids=("j7", "j8")), "slices_by_job"),
        (SliceFilter(groups=("g7",), start=LATE.start), "slices_by_group"),
        (SliceFilter(users=("u7",), start=LATE.start), "slices_by_user"),
        (LATE, "slices_by_end"),
        (SliceFilter(start=LATE.start, uid=1000, states=("YIELDED",)), "slices_by_end"),
    ],
    ids=["job", "group", "user", "end", "own"],
)
def test_each_page_of_a_report_runs_along_its_index(
    engine: sa.Engine, wanted: SliceFilter, index: str
) -> None:
    for query in first_and_next(wanted):
        assert_along(engine, query, index)


def test_the_last_yield_of_each_member_is_found_along_the_index(engine: sa.Engine) -> None:
    assert_along(engine, last_yields_query(), "slices_by_job")


def test_what_is_to_be_forgotten_is_found_along_the_index(engine: sa.Engine) -> None:
    epoch, ended = BY_END[1], BY_END[0]

    assert_along(engine, sa.select(epoch).where(ended < 100.0).order_by(*BY_END).limit(200), "slices_by_end")


def test_without_the_index_this_would_be_noticed(database: str) -> None:
    with closing(Store(database)) as store:
        store.record(put(*(slice_of(n, group=f"g{n % 50}") for n in range(1, 2000))), 2000)
    engine = open_engine(database)
    with engine.begin() as db:
        on = " ON slices" if engine.dialect.name == "mariadb" else ""
        db.exec_driver_sql(f"DROP INDEX slices_by_group{on}")

    for query in first_and_next(SliceFilter(groups=("g7",))):
        with pytest.raises(AssertionError):
            assert_along(engine, query, "slices_by_group")
    engine.dispose()
