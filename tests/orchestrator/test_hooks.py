"""The unix socket that the slurmctld epilog talks to."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_interleave.client.core.errors import BadName, ConfigError
from slurm_interleave.client.core.hook_server import HookServer, Peer
from slurm_interleave.orchestrator.daemon import Orchestrator
from slurm_interleave.sql.rows import Key
from tests.orchestrator.fake_agent import FakeAgent
from tests.orchestrator.serving import Client


async def say(path: Path, line: bytes) -> dict[str, Any]:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(line)
    writer.write_eof()
    reply: dict[str, Any] = json.loads(await asyncio.wait_for(reader.readline(), 30))
    writer.close()
    await writer.wait_closed()
    return reply


async def test_slurm_ends_a_job_that_holds(
    orchestrator: Orchestrator, client: Client, n1: FakeAgent, tmp_path: Path
) -> None:
    await client.lock("a")
    waiting = asyncio.ensure_future(client.lock("b"))
    await client.waiting(1)

    over = await say(tmp_path / "interleaved.sock", b'{"verb": "job-over", "job": "a"}\n')

    assert over == {"ok": True}
    assert (await asyncio.wait_for(waiting, 30)).success, "its state is taken off by the agent, which is here"
    assert [order.job_id for order in n1.orders] == ["a"]


async def test_the_late_end_of_a_job_does_not_end_its_next_run(
    orchestrator: Orchestrator, client: Client, n1: FakeAgent, tmp_path: Path
) -> None:
    began = orchestrator.arbiter.now()
    await n1.start("x", started=began)
    await client.lock("x")
    socket, ahead = tmp_path / "interleaved.sock", int(began) + 10_000

    late = await say(socket, f'{{"verb": "job-over", "job": "x", "ended": "{int(began) - 1}"}}\n'.encode())
    held = Key("x", "demo") in orchestrator.arbiter.core.state.leases
    await say(socket, f'{{"verb": "job-over", "job": "x", "ended": "{ahead}"}}\n'.encode())

    assert late == {"ok": True}
    assert held
    assert Key("x", "demo") not in orchestrator.arbiter.core.state.leases


async def test_the_end_of_an_unknown_job_is_fine(orchestrator: Orchestrator, tmp_path: Path) -> None:
    reply = await say(tmp_path / "interleaved.sock", b'{"verb": "job-over", "job": "99999"}\n')

    assert reply == {"ok": True}


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"",
        b"garbage\n",
        b"\xff\xfe\n",
        b"[]\n",
        b"7\n",
        b'{"verb": ["job-over"]}\n',
        b'{"verb": "format-disk"}\n',
        b'{"verb": "job-over"}\n',
        b'{"verb": "job-over", "job": "$(id)"}\n',
        b'{"verb": "job-over", "job": "' + b"9" * 100_000 + b'"}\n',
    ],
    ids=lambda line: line[:24].decode(errors="replace"),
)
async def test_garbage_is_refused_with_a_reason_and_the_next_one_is_served(
    orchestrator: Orchestrator, tmp_path: Path, line: bytes
) -> None:
    refused = await say(tmp_path / "interleaved.sock", line)

    assert refused["ok"] is False
    assert refused["error"]
    good = await say(tmp_path / "interleaved.sock", b'{"verb": "job-over", "job": "1"}\n')
    assert good == {"ok": True}


async def test_a_caller_who_hangs_up_hurts_nobody(orchestrator: Orchestrator, tmp_path: Path) -> None:
    path = tmp_path / "interleaved.sock"
    for _ in range(3):
        _, writer = await asyncio.open_unix_connection(path)
        writer.write(b'{"verb": ')
        writer.close()
        await writer.wait_closed()

    assert await say(path, b'{"verb": "job-over", "job": "1"}\n') == {"ok": True}


NOBODY, SLURM = 65_534, 64_030


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that every user may enter."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def open_to_all(path: Path) -> None:
    path.chmod(0o666)


async def said_by(uid: int, path: Path) -> dict[str, Any]:
    """Return what the server at *path* answers to a process of user *uid*."""
    script = (
        "import os, socket, sys; s = socket.socket(socket.AF_UNIX); os.setuid(int(sys.argv[2])); "
        "s.connect(sys.argv[1]); "
        's.sendall(b\'{"verb": "job-over", "job": "1"}\\n\'); print(s.makefile().readline())'
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(path), str(uid), stdout=subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(process.communicate(), 30)
    reply: dict[str, Any] = json.loads(out)
    return reply


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")
async def test_only_root_and_the_daemons_user_may_talk_there(reachable: Path) -> None:
    path = reachable / "hooks.sock"

    async with HookServer(path, {"job-over": _never}):
        assert mode(path) == 0o600
        open_to_all(path)
        reply = await said_by(NOBODY, path)

    assert reply["ok"] is False
    assert "only root may" in reply["error"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")
async def test_slurms_user_may_talk_there_too_where_it_is_another_and_nobody_else(reachable: Path) -> None:
    async def over(request: dict[str, Any], peer: Peer) -> dict[str, Any]:
        return {"uid": peer.uid}

    path = reachable / "hooks.sock"

    async with HookServer(path, {"job-over": over}, users=frozenset({0, SLURM})):
        assert await said_by(SLURM, path) == {"ok": True, "uid": SLURM}
        refused = await said_by(NOBODY, path)

    assert (refused["ok"], refused["error"][:10]) == (False, f"uid {NOBODY} ")


async def _never(request: dict[str, Any], peer: Peer) -> dict[str, Any]:
    raise AssertionError(f"it was called with {request}")


async def test_a_refusal_travels_with_its_text(tmp_path: Path) -> None:
    async def refuse(request: dict[str, Any], peer: Peer) -> dict[str, Any]:
        raise BadName("not that name")

    async with HookServer(tmp_path / "s", {"try": refuse}):
        assert await say(tmp_path / "s", b'{"verb": "try"}\n') == {"ok": False, "error": "not that name"}


async def test_a_socket_left_by_a_killed_daemon_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "s"))

    async with HookServer(tmp_path / "s", {"try": _never}):
        assert not (await say(tmp_path / "s", b"\n"))["ok"]

    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("kind", ["file", "folder", "fifo", "link"])
async def test_what_is_no_socket_is_not_replaced_by_one(tmp_path: Path, kind: str) -> None:
    path, other = tmp_path / "s", tmp_path / "other"
    other.write_text("of somebody")
    make = {"file": path.touch, "folder": path.mkdir, "fifo": lambda: os.mkfifo(path)}
    make.get(kind, lambda: path.symlink_to(other))()
    before = path.lstat()

    with pytest.raises(ConfigError, match=r"socket .*/s cannot be made: .*is there and no socket"):
        async with HookServer(path, {}):
            pass

    assert path.lstat() == before
    assert other.read_text() == "of somebody"


async def test_a_socket_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError, match=r"socket .*/file/s cannot be made"):
        async with HookServer(tmp_path / "file" / "s", {}):
            pass
