"""The socket that every user of a node may open: nobody can take it from the others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from slurm_interleave.client.core import hook_server
from slurm_interleave.client.core.errors import NotRegistered
from slurm_interleave.client.core.hook_server import PER_USER, HookServer, Peer
from slurm_interleave.client.registration import register

ALICE, BOB = 1000, 1001


class Caller:
    """Who opens the next connections, in place of the kernel's word."""

    uid = ALICE


@pytest.fixture
def caller(monkeypatch: pytest.MonkeyPatch) -> Caller:
    caller = Caller()
    monkeypatch.setattr(hook_server, "_peer", lambda _: Peer(0, caller.uid, caller.uid))
    return caller


@pytest_asyncio.fixture
async def path(tmp_path: Path, caller: Caller) -> AsyncIterator[Path]:
    async with HookServer(tmp_path / "s", {"register": answer}, to_all=True):
        yield tmp_path / "s"


async def answer(request: dict[str, Any], peer: Peer) -> Mapping[str, Any]:
    return {"variables": {"USER": peer.uid}}


async def ask(path: Path) -> dict[str, str]:
    return await asyncio.wait_for(asyncio.to_thread(register, path, {}), 30)


@contextlib.asynccontextmanager
async def silent(path: Path, count: int) -> AsyncIterator[None]:
    """Hold so many connections open without a word."""
    opened = [await asyncio.open_unix_connection(path) for _ in range(count)]
    yield
    for reader, writer in opened:
        writer.write_eof()
        await reader.read()
        writer.close()
        await writer.wait_closed()


async def test_a_user_with_too_many_connections_is_refused_at_once_and_others_are_not(
    path: Path, caller: Caller
) -> None:
    async with silent(path, PER_USER):
        for _ in range(3):
            with pytest.raises(NotRegistered, match=f"uid {ALICE} has {PER_USER} connections open here"):
                await ask(path)
        for caller.uid in (BOB, 0):
            assert await ask(path) == {"USER": str(caller.uid)}


async def test_connections_that_are_over_count_no_more(path: Path, caller: Caller) -> None:
    async with silent(path, PER_USER):
        pass

    async with silent(path, PER_USER - 1):
        assert await ask(path) == {"USER": str(ALICE)}


async def test_root_has_as_many_as_it_likes(path: Path, caller: Caller) -> None:
    caller.uid = 0

    async with silent(path, 2 * PER_USER):
        assert await ask(path) == {"USER": "0"}
