from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from typing import Any

import grpc
import pytest

from slurm_interleave.client.connect import CHANNEL_OPTIONS
from slurm_interleave.node_agent import sockets
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.sockets import CONNECTIONS_MAX
from tests.node_agent.fakes import environment, eventually, start_job


async def test_a_job_cannot_use_up_the_files_of_the_agent_by_connections(agent: Agent, folder: Path) -> None:
    await start_job(folder)
    address = environment(folder)["INTERLEAVE_SOCKET"].removeprefix("unix:")
    connections = [await asyncio.open_unix_connection(address) for _ in range(CONNECTIONS_MAX + 50)]
    try:

        async def is_capped() -> bool:
            closed = [await ended(reader) for reader, _ in connections[-50:]]
            return all(closed)

        await eventually(is_capped)
    finally:
        for _, writer in connections:
            writer.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
async def test_a_jobs_socket_is_its_users(agent: Agent, folder: Path) -> None:
    await start_job(folder, uid=65534, gid=65533)

    about = (folder / "run" / "jobs" / "17" / "socket").stat()

    assert (about.st_uid, about.st_gid, stat.S_IMODE(about.st_mode)) == (65534, 65533, 0o600)


async def test_a_socket_is_out_of_reach_until_it_has_its_owner(
    agent: Agent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve, modes = sockets.serve, []

    def mode(path: Path) -> tuple[bool, int]:
        return path.is_socket(), stat.S_IMODE(path.parent.stat().st_mode)

    async def watched(address: str, *arguments: Any) -> tuple[grpc.aio.Server, int]:
        served = await serve(address, *arguments)
        modes.append(mode(Path(address.removeprefix("unix:"))))
        return served

    monkeypatch.setattr(sockets, "serve", watched)
    for _ in range(2):  # the folder of one that comes again is there
        await start_job(folder, group="demo")
        await agent._folders.close_all()

    assert modes == [(True, 0o700)] * 2


async def ended(reader: asyncio.StreamReader) -> bool:
    """Whether the other side has closed a connection; what it said before is dropped."""
    try:
        return reader.at_eof() or not await asyncio.wait_for(reader.read(4096), 0.01)
    except asyncio.TimeoutError:
        return False
    except ConnectionError:
        return True


@pytest.mark.parametrize("options", [sockets._OPTIONS, sockets._JOB_OPTIONS])
def test_its_servers_take_as_many_pings_as_our_channels_send(options: tuple[tuple[str, int], ...]) -> None:
    """A stream that is silent for long, as that of a job that came back, would be cut."""
    allowed = dict(options)["grpc.http2.min_ping_interval_without_data_ms"]

    assert dict(CHANNEL_OPTIONS)["grpc.keepalive_time_ms"] >= allowed
