"""SQLite's file on a disk that fills up, or cannot be written: what was answered is there, and it goes on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from tests.orchestrator.fake_agent import agent
from tests.orchestrator.processes import LIMIT_S, Daemon
from tests.orchestrator.serving import Client
from tests.small_disk import SmallDisk, small_disk

ROOT = Path(__file__).parents[2]
KIB = 1024
INTERLEAVE = str(Path(sys.executable).with_name("interleave"))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", 1024) as disk:
        yield disk


@pytest.fixture
def url(disk: SmallDisk) -> str:
    return f"sqlite:///{disk.path}/orchestrator.db"


@pytest.fixture
def interleaved(tmp_path: Path, disk: SmallDisk, url: str) -> Iterator[Daemon]:
    """Not started yet."""
    running = Daemon(tmp_path, before=disk.enter, database=url)
    yield running
    if running.process is not None and running.process.poll() is None:
        running.end(signal.SIGKILL)


def on(disk: SmallDisk, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run some lines of Python that see the disk."""
    argv = [*disk.enter, "env", f"PYTHONPATH={ROOT}", sys.executable, "-c", program, *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, check=False)


_BOOK = """
import json, sqlite3, sys
db = sqlite3.connect(sys.argv[1].removeprefix("sqlite:///"))
slices = [row for row, in db.execute("SELECT epoch FROM slices ORDER BY epoch")]
leases = [row for row, in db.execute("SELECT epoch FROM leases")]
print(json.dumps([slices, leases, db.execute("PRAGMA integrity_check").fetchone()[0]]))
"""


def book(disk: SmallDisk, url: str) -> tuple[list[int], list[int]]:
    """Return the epochs of the turns that have ended, and of those that last."""
    slices, leases, integrity = json.loads(on(disk, _BOOK, url).stdout)
    assert integrity == "ok"
    return slices, leases


async def turns(client: Client) -> list[int]:
    """Take turns until the orchestrator is gone, or for some hundred; return what was granted."""
    granted: list[int] = []
    with contextlib.suppress(grpc.aio.AioRpcError):
        for _ in range(500):
            granted.append((await client.granted("a")).epoch)
            await client.end("a", granted[-1])
    return granted


def ends(running: Daemon) -> str:
    """Wait until it has ended by itself; return its last line."""
    assert running.process is not None
    assert running.process.wait(LIMIT_S) == 1
    assert "Traceback" not in running.text()
    return running.text().splitlines()[-1]


async def test_what_was_granted_is_in_the_database_and_it_goes_on_when_there_is_room(
    interleaved: Daemon, disk: SmallDisk, url: str
) -> None:
    await asyncio.to_thread(interleaved.start)
    client = Client(interleaved.address)
    async with agent(interleaved.address) as n1:
        await n1.start("a")
        disk.fill(but=128 * KIB)
        first = await turns(client)
        said = await asyncio.to_thread(ends, interleaved)
        slices, leases = book(disk, url)

    assert first
    assert set(first) <= {*slices, *leases}
    assert f"database or disk is full: make room on the disk of {disk.path}/orchestrator.db" in said

    disk.empty()
    await asyncio.to_thread(interleaved.start)
    async with agent(interleaved.address) as n1:
        await n1.start("a")
        await client.end("a")
        second = await turns(client)

    slices, _ = book(disk, url)
    assert len(second) == 500
    assert min(second) > max(first)
    assert {*first, *second} <= set(slices)
    await client.channel.close()


def test_its_log_leaves_the_room_that_a_small_disk_has(interleaved: Daemon, disk: SmallDisk) -> None:
    before = shutil.disk_usage(disk.seen).free

    interleaved.start()

    assert shutil.disk_usage(disk.seen).free > before - 512 * KIB


_OLD = """
import sys
from tests.sql.test_migrations import to
to(sys.argv[1], "0004")
"""
_REVISION = """
import sys
from slurm_interleave.sql.engine import open_engine
from slurm_interleave.sql.migrate import revision
with open_engine(sys.argv[1]).connect() as db:
    print(revision(db))
"""


def test_an_upgrade_on_a_full_disk_is_not_begun_and_is_done_when_there_is_room(
    interleaved: Daemon, disk: SmallDisk, url: str
) -> None:
    assert on(disk, _OLD, url).returncode == 0
    config = interleaved.folder / "upgrade.toml"
    config.write_text(f'[orchestrator]\ndatabase = "{url}"\n')
    argv = [*disk.enter, INTERLEAVE, "db", "upgrade", "--config", str(config)]
    disk.fill()

    command = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    with contextlib.suppress(AssertionError):
        interleaved.start()
    said = ends(interleaved)

    for text in (command.stderr, said):
        assert f": make room on the disk of {disk.path}/orchestrator.db" in text
        assert "Traceback" not in text
    disk.empty()
    assert on(disk, _REVISION, url).stdout.strip() == "0004"
    interleaved.start()
    assert on(disk, _REVISION, url).stdout.strip() > "0004"


def _full(disk: SmallDisk) -> str:
    disk.fill()
    return ": make room on the disk of"


def _read_only(disk: SmallDisk) -> str:
    disk.remount("ro")
    return "Read-only file system"


@pytest.mark.parametrize("hurt", [_full, _read_only])
@pytest.mark.parametrize("ready", [True, False])
def test_a_start_that_cannot_write_says_where_and_what_to_do(
    interleaved: Daemon, disk: SmallDisk, hurt: Callable[[SmallDisk], str], ready: bool
) -> None:
    if ready:
        interleaved.start()
        interleaved.end(signal.SIGTERM)
    wanted = hurt(disk)

    with contextlib.suppress(AssertionError):
        interleaved.start()
    said = ends(interleaved)

    assert wanted in said
    assert str(disk.path) in said
    disk.remount("rw")
    disk.empty()
    interleaved.start()
