"""An inference server belongs to a job: whatever it answers harms nobody else on the node."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.node_agent import endpoints
from slurm_interleave.node_agent.backends.endpoint_dialects import Vllm
from slurm_interleave.node_agent.backends.endpoint_http import EndpointFailed, Reply, call
from slurm_interleave.node_agent.waits import Stop
from tests.node_agent.fakes import eventually


class Server:
    """Answers each connection with *head*, and then a byte now and then for as long as it is there."""

    def __init__(self) -> None:
        self.url, self.head, self.drops, self.connected = "", b"", False, 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connected += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self.head)
            while self.drops and not reader.at_eof():
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.01)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        self.connected -= 1

    async def is_left(self) -> bool:
        return not self.connected


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    async with await asyncio.start_server(made.serve, "127.0.0.1", 0) as listening:
        made.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield made
        made.drops = False
        await eventually(made.is_left)


HEADS = [b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n", b"HTTP"]


async def test_a_server_that_answers_in_drops_keeps_no_thread_of_the_agent(server: Server) -> None:
    server.drops = True
    for server.head in (
        b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\n",
        b"HTTP",
    ):
        before = threading.active_count()
        with pytest.raises(EndpointFailed):
            await call("GET", server.url, "/metrics", 0.2)

        async def is_over(before: int = before) -> bool:
            return threading.active_count() <= before

        await eventually(is_over)


@pytest.mark.parametrize("count", ["1e+999", "9" * 400, "1.5"])
async def test_counts_of_requests_that_nobody_can_have_are_requests_in_flight(
    server: Server, count: str
) -> None:
    server.head = f"HTTP/1.0 200 OK\r\n\r\nvllm:num_requests_running {count}\n".encode()
    until = asyncio.get_running_loop().time() + 0.2

    with pytest.raises(EndpointFailed, match="requests are in flight"):
        await Vllm(server.url, (), discard=False).drain(until, Stop())


def test_an_answer_that_is_no_json_is_none() -> None:
    for body in ("", "{", "[" * 100_000, "9" * 5_000):
        assert Reply(200, body).json() is None


@pytest.mark.parametrize("path", ["/é", "/a b", "/\n", "/\x7f", "/\u202e"])
def test_an_url_that_cannot_be_asked_for_is_refused_when_it_is_named(path: str) -> None:
    with pytest.raises(BadArgument, match="%-encoded"):
        endpoints.parse("vllm", [f"http://localhost:8000{path}"])


def test_the_names_of_many_servers_cost_one_look_at_dns(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(socket, "getfqdn", lambda: asked.append("dns") or "n1.example")
    endpoints.own_names.cache_clear()
    try:
        endpoints.parse("vllm", [f"http://n1.example:{port}" for port in range(8000, 8200)])
        with pytest.raises(BadArgument, match="not on this node"):
            endpoints.parse("vllm", ["http://elsewhere.example:8000"])
    finally:
        endpoints.own_names.cache_clear()

    assert asked == ["dns"]
