"""The recorder or its database is killed at any moment: nothing acknowledged is lost, nothing half there."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from lab.databases import DatabaseServer
from slurm_interleave.sql.admin import Database
from slurm_interleave.sql.store import Store
from tests.sql.given import assert_handed_over

ROOT = Path(__file__).parents[2]
ROUNDS = 3


class Recorder:
    """`recorder.py` as a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.acknowledged = 0

    def hear(self, count: int) -> None:
        """Wait for the next *count* batches."""
        assert self.process.stdout is not None
        for _ in range(count):
            line = self.process.stdout.readline()
            assert line, self.process.communicate()[1]
            self.acknowledged = int(line)

    def hear_all(self) -> str:
        """Read what it said before its end; return what it complained of."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        # Not `communicate`, which does not know of the lines that `readline` has read ahead.
        self.acknowledged = max([self.acknowledged, *map(int, self.process.stdout)])
        return self.process.stderr.read()


@contextmanager
def recording(url: str) -> Iterator[Recorder]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.sql.recorder", url],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Recorder(process)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("attempt", range(ROUNDS))
def test_killed_at_any_moment_it_has_what_it_acknowledged(database: str, attempt: int) -> None:
    moments = random.SystemRandom()
    for _ in range(2):
        with recording(database) as recorder:
            recorder.hear(moments.randint(2, 60))
            threading.Timer(moments.random() / 100, recorder.process.kill).start()
            recorder.hear_all()

        with closing(Store(database)) as store:
            assert_handed_over(store, recorder.acknowledged)
        with Database(database) as opened:
            assert opened.problems() == []


@pytest.mark.parametrize("attempt", range(ROUNDS))
def test_when_its_server_is_killed_it_ends_with_a_message_and_goes_on_later(
    server: DatabaseServer, attempt: int
) -> None:
    moments, url = random.SystemRandom(), server.fresh()
    for _ in range(2):
        with recording(url) as recorder:
            recorder.hear(moments.randint(2, 60))
            threading.Timer(moments.random() / 100, server.kill9).start()
            complaint = recorder.hear_all()
        assert complaint.splitlines()[-1].startswith(f"recorder: database {server.kind}://"), complaint
        assert "Traceback" not in complaint

        server.start()
        with closing(Store(url)) as store:
            assert_handed_over(store, recorder.acknowledged)
