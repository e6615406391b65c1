"""The file of SQLite and its log: crashes, other writers, and disks without room."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa

from slurm_interleave.sql import engine, rows
from slurm_interleave.sql.store import Locked, RowId, Store, row_id
from tests.sql.on_sqlite import put, store, url

__all__ = ["store", "url"]


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
