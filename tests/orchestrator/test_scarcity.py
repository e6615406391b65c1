"""No file can be opened any more, or no thread started: turns go on, and the log stays short."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.orchestrator.fake_agent import agent
from tests.orchestrator.processes import Daemon, daemon
from tests.orchestrator.serving import Client
from tests.pid_limit import pid_limit

FILES = 48


@pytest.fixture
def interleaved(tmp_path: Path) -> Iterator[Daemon]:
    with daemon(tmp_path, before=["prlimit", f"--nofile={FILES}:{FILES}", "--"]) as running:
        yield running


async def a_turn(client: Client, job: str) -> None:
    epoch = (await asyncio.wait_for(client.granted(job), 30)).epoch
    await asyncio.wait_for(client.end(job, epoch), 30)


def knock(path: Path, count: int) -> list[socket.socket]:
    """Open connections and say nothing."""
    opened = []
    for _ in range(count):
        one = socket.socket(socket.AF_UNIX)
        one.setblocking(False)
        opened.append(one)
        with contextlib.suppress(BlockingIOError):  # as many wait as the kernel lets
            one.connect(str(path))
    return opened


async def test_turns_go_on_while_no_file_can_be_opened_and_it_is_said_once(interleaved: Daemon) -> None:
    client = Client(interleaved.address)
    async with agent(interleaved.address) as n1:
        for job in "ab":
            await n1.start(job)
        await a_turn(client, "a")
        knocking = knock(interleaved.folder / "interleaved.sock", 2 * FILES)
        await asyncio.to_thread(interleaved.says, "event=files.exhausted")

        for job in "ab":
            await a_turn(client, job)
        assert len(await client.slices()) == 3
        assert interleaved.text().count("files.exhausted") == 1
        assert "Traceback" not in interleaved.text()

        for one in knocking:
            one.close()
        await a_turn(client, "a")
    await client.channel.close()
    assert interleaved.end(signal.SIGTERM) == 0


async def test_turns_go_on_while_no_thread_can_be_started(interleaved: Daemon) -> None:
    client = Client(interleaved.address)
    assert interleaved.process is not None
    async with agent(interleaved.address) as n1:
        for job in "ab":
            await n1.start(job)
        with pid_limit(interleaved.process.pid) as limit:
            limit.full()
            for job in "abab":
                await a_turn(client, job)
            assert len(await asyncio.wait_for(client.slices(), 30)) == 4
    await client.channel.close()
    assert "Traceback" not in interleaved.text()
