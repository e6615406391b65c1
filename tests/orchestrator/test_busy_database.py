"""Another program writes to SQLite's file: `interleave db prune`, a backup. Nobody else waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_interleave.orchestrator.daemon import Orchestrator
from tests.orchestrator.fake_agent import FakeAgent
from tests.orchestrator.serving import Client

LOAD = 32  # acquires at a time: enough for decisions to be gathered


@pytest.fixture
def writer(tmp_path: Path, orchestrator: Orchestrator) -> Iterator[sqlite3.Connection]:
    """Another program at work on the orchestrator's database."""
    with contextlib.closing(sqlite3.connect(tmp_path / "orchestrator.db", isolation_level=None)) as other:
        yield other


async def test_calls_are_answered_while_a_grant_waits_for_another_writer(
    client: Client, n1: FakeAgent, writer: sqlite3.Connection
) -> None:
    writer.execute("BEGIN IMMEDIATE")
    waiting = asyncio.create_task(client.granted("a"))
    await client.held_by("a")

    assert (await asyncio.wait_for(client.status("demo"), 5)).groups[0].name == "demo"
    assert not waiting.done(), "a grant is recorded before it is answered"
    writer.execute("COMMIT")

    assert (await asyncio.wait_for(waiting, 5)).epoch == 1
    assert writer.execute("SELECT epoch FROM leases").fetchall() == [(1,)]


async def test_a_load_of_calls_waits_for_another_writer_and_loses_nothing(
    client: Client, n1: FakeAgent, writer: sqlite3.Connection
) -> None:
    for number in range(LOAD):
        await n1.start(f"j{number}", f"g{number}", number)
    writer.execute("BEGIN IMMEDIATE")
    waiting = [asyncio.create_task(client.granted(f"j{n}", f"g{n}")) for n in range(LOAD)]
    for number in range(LOAD):
        await client.held_by(f"j{number}", f"g{number}")

    assert not any(task.done() for task in waiting)
    writer.execute("COMMIT")

    grants = await asyncio.wait_for(asyncio.gather(*waiting), 10)
    assert sorted(grant.epoch for grant in grants) == list(range(1, LOAD + 1))
    assert writer.execute("SELECT count(*) FROM leases").fetchall() == [(LOAD,)]


async def test_a_writer_that_comes_and_goes_loses_no_turn(
    client: Client, n1: FakeAgent, writer: sqlite3.Connection
) -> None:
    for _ in range(3):
        writer.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(client.granted("a"))
        await client.held_by("a")
        writer.execute("ROLLBACK")
        await asyncio.wait_for(waiting, 5)
        await client.end("a")

    assert len(await client.slices()) == 3
