"""Old slices are forgotten by the orchestrator itself, beside its work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from slurm_interleave.client.core.errors import ConfigError, DatabaseFailed
from slurm_interleave.orchestrator import retention
from slurm_interleave.orchestrator.config import OrchestratorConfig
from slurm_interleave.orchestrator.core.commands import Drop
from slurm_interleave.orchestrator.retention import DAY_S, Retention
from slurm_interleave.sql.rows import Slice
from slurm_interleave.sql.store import Store
from tests.orchestrator.fake_agent import agent
from tests.orchestrator.serving import Client, eventually, serving
from tests.sql.given import drop, put, slice_of

NOW = 1000 * DAY_S
OLD = 200


def fill(store: Store, now: float) -> None:
    """Slices that ended 30 days ago, and one of yesterday."""
    old = [slice_of(n, ended=now - 30 * DAY_S + n) for n in range(1, OLD + 1)]
    store.record(put(*old, slice_of(OLD + 1, ended=now - DAY_S)), OLD + 1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store(f"sqlite:///{tmp_path}/orchestrator.db")) as opened:
        yield opened


def epochs(store: Store) -> list[int]:
    return [row.epoch for row in store.all(Slice)]


async def test_a_start_forgets_what_is_too_old_while_turns_change_hands(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/orchestrator.db"
    with closing(Store(url)) as before:
        fill(before, time.time())

    async with serving(tmp_path, keep_slices_days=7) as orchestrator:
        client = Client(f"127.0.0.1:{orchestrator.port}")
        async with agent(client.address) as n1:
            await n1.start("a")
            lease = await client.granted("a")
            left = len(epochs(orchestrator.arbiter._store))
            await client.end("a", lease.epoch)

            async def done() -> bool:
                return epochs(orchestrator.arbiter._store) == [OLD + 1, lease.epoch]

            await eventually(done)
        await client.channel.close()
    assert left > 1, "the first turn did not wait for all of it"


class Recording:
    """Records what it is given, and remembers how much that was each time."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.steps: list[int] = []

    async def __call__(self, drops: Sequence[Drop]) -> None:
        self.steps.append(len(drops))
        self.store.record(drop(*(each.row for each in drops)), self.store.epoch)


async def test_it_forgets_a_little_at_a_time(store: Store) -> None:
    fill(store, NOW)
    record = Recording(store)

    await Retention(store, record, 7, lambda: NOW).forget()

    assert record.steps == [retention._STEP] * (OLD // retention._STEP)
    assert epochs(store) == [OLD + 1]


async def test_it_looks_again_and_a_failure_is_not_the_end(
    store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing, oldest = [DatabaseFailed("it is away")], store.oldest

    def oldest_or_fail(before: float, count: int) -> list[Slice]:
        if failing:
            raise failing.pop()
        return oldest(before, count)

    monkeypatch.setattr(store, "oldest", oldest_or_fail)
    fill(store, NOW)
    forgetting = Retention(store, Recording(store), 7, lambda: NOW, every_s=0.01)
    running = asyncio.create_task(forgetting.run())

    async def only_one_is_left() -> bool:
        return epochs(store) == [OLD + 1]

    await eventually(only_one_is_left)
    store.record(put(slice_of(1, ended=NOW - 8 * DAY_S)), OLD + 2)
    await eventually(only_one_is_left)

    assert "slices.kept" in caplog.messages
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("days", [-1, 1 << 40])
def test_days_that_cannot_be_are_refused(days: int) -> None:
    with pytest.raises(ConfigError, match="keep_slices_days"):
        OrchestratorConfig(keep_slices_days=days)
