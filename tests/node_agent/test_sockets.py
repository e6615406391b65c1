from __future__ import annotations

import asyncio
from pathlib import Path

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
