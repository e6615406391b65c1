"""The web page of `interleaved`: whom it is shown to, what it shows, and what a hostile client can do."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_interleave.client.connect import token_metadata
from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc
from slurm_interleave.orchestrator.auth import Caller
from slurm_interleave.orchestrator.daemon import Orchestrator
from slurm_interleave.orchestrator.web import server
from slurm_interleave.orchestrator.web.config import WebConfig
from slurm_interleave.orchestrator.web.links import PageLinks
from slurm_interleave.orchestrator.web.server import Answer, HttpServer
from tests.browser import Page, chromium, needs_chromium
from tests.orchestrator.fake_agent import FakeAgent
from tests.orchestrator.serving import Client, eventually, serving

MUCH = 30_000_000  # bytes, more than sockets hold
EVIL = "<img src=x onerror=window.evil=1>"


@pytest.fixture
async def orchestrator(tmp_path: Path) -> AsyncIterator[Orchestrator]:
    async with serving(tmp_path, WebConfig(listen="127.0.0.1:0")) as running:
        yield running


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(tmp_path_factory.mktemp("chromium")) as page:
        yield page


async def link(client: Client, **call: Any) -> str:
    reply: pb.OpenPageReply = await rpc.PagesStub(client.channel).OpenPage(pb.OpenPageRequest(), **call)  # type: ignore[call-arg,misc]
    return reply.url


async def exchange(port: int, request: bytes) -> str:
    """Send *request* and return all that comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        return (await reader.read()).decode()
    except ConnectionResetError:
        return ""
    finally:
        writer.close()


async def get(url: str) -> str:
    port, path = url.removeprefix("http://127.0.0.1:").split("/", 1)
    return await exchange(int(port), f"GET /{path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())


async def two_turns(client: Client) -> None:
    """Let a take a turn, then b, who holds while c waits."""
    await client.end("a", (await client.granted("a", phase="rollout")).epoch)
    await client.granted("b", phase="train")
    client.acquire("c")
    await client.waiting(1)


async def test_an_operator_sees_groups_queue_last_hour_and_savings(client: Client, n1: FakeAgent) -> None:
    await two_turns(client)

    page = await get(await link(client))

    assert page.startswith("HTTP/1.1 200 ")
    text = re.sub("<[^>]*>", " ", page)
    assert re.search(r"demo\s+locked\s+b\s+alice\s+holds\s+train", text)
    assert re.search(r"demo\s+locked\s+c\s+alice\s+waits \(2\)", text)
    assert "n1/0" in text
    assert "<title>job a rollout: holds, " in page
    assert "<title>job b train: snapshot, " in page
    assert re.search(r"demo\s+1\s+1\s+", text), "the savings of one job and one turn"


async def test_nothing_on_the_page_runs_or_comes_from_elsewhere(client: Client, n1: FakeAgent) -> None:
    head, _, body = (await get(await link(client))).partition("\r\n\r\n")

    assert "Content-Security-Policy: default-src 'none'; style-src 'sha256-" in head
    for header in (
        "X-Content-Type-Options: nosniff",
        "Referrer-Policy: no-referrer",
        "Cache-Control: no-store",
    ):
        assert header in head
    assert not re.search(r"<script|<link|<iframe|\bsrc=|\bhref=|\bon\w+=|style=", body)


async def test_a_user_sees_his_own_groups_and_turns_alone(client: Client, n1: FakeAgent) -> None:
    mine = token_metadata(await n1.start("d", "other", 1, uid=1001, user="bob"))
    await two_turns(client)
    await client.granted("d", "other", metadata=mine)

    page = await get(await link(client, metadata=mine))

    assert "other" in page
    assert "<title>job d " in page
    for theirs in ("demo", "alice", "rollout", "n1/0"):
        assert theirs not in page


@pytest.mark.parametrize("path", ["", "wrong/", "%2e%2e/", "?x=1", "\xff", "a" * 2000])
async def test_a_stranger_learns_nothing(
    orchestrator: Orchestrator, client: Client, n1: FakeAgent, path: str
) -> None:
    await two_turns(client)
    await link(client)

    answer = await get(f"http://127.0.0.1:{orchestrator.web_port}/{path}")

    assert answer.startswith(("HTTP/1.1 404 ", "HTTP/1.1 400 ")) or not answer
    assert "demo" not in answer


async def test_whoever_cannot_prove_who_he_is_gets_no_link(tmp_path: Path) -> None:
    async with serving(tmp_path, WebConfig(listen="127.0.0.1:0"), auth="munge") as orchestrator:
        client = Client(f"127.0.0.1:{orchestrator.port}")
        with pytest.raises(Exception, match="UNAUTHENTICATED"):
            await link(client)
        await client.channel.close()


async def test_where_nothing_is_configured_nobody_listens(tmp_path: Path) -> None:
    async with serving(tmp_path) as orchestrator:
        client = Client(f"127.0.0.1:{orchestrator.port}")
        assert orchestrator.web_port == 0
        with pytest.raises(Exception, match="UNIMPLEMENTED"):
            await link(client)
        await client.channel.close()


def test_a_link_ends_and_of_too_many_the_oldest_does() -> None:
    now, alice, bob = [0.0], Caller(1000), Caller(1001)
    links = PageLinks(60, lambda: now[0])
    others, _ = links.make(bob)
    made = [links.make(alice)[0] for _ in range(25)]

    assert [links.caller(secret) for secret in made] == [None] * 5 + [alice] * 20
    assert links.caller(others) == bob
    now[0] = 60
    assert links.caller(made[-1]) is None
    assert links.caller("") is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"listen": "0.0.0.0:9104"}, "loopback"),
        ({"listen": "unix:/run/x.sock"}, "loopback"),
        ({"listen": "9104"}, "no address"),
        ({"listen": "127.0.0.1:1", "url": "ftp://head"}, "no address of a page"),
        ({"hours": 0}, "must be 1 to 168"),
    ],
)
def test_a_page_that_a_network_could_read_along_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        WebConfig(**settings)


async def test_an_address_that_is_taken_is_said_so(orchestrator: Orchestrator, tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    taken = WebConfig(listen=f"127.0.0.1:{orchestrator.web_port}")

    with pytest.raises(ConfigError, match=r"\[web\] listen = .* cannot be used"):
        async with serving(tmp_path / "two", taken):
            pass


async def big(path: str) -> Answer:
    return Answer(200, path.strip("/") * MUCH)


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", "HTTP/1.1 405 "),
        (b"GET / HTTP/1.1\r\n\r\n", ""),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20 + b"\r\n\r\n", ""),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 100_000 + b"\r\n\r\n", ""),
        (b"HEAD /x HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 "),
    ],
)
async def test_whatever_is_sent_is_answered_briefly_or_not_at_all(request_: bytes, answer: str) -> None:
    async with HttpServer(big).serving("127.0.0.1:0") as port:
        got = await exchange(port, request_)

    assert got.startswith(answer)
    assert len(got) < 500


async def test_who_sends_or_reads_slowly_is_cut_off_at_the_deadline() -> None:
    http = HttpServer(big, deadline_s=0.2)
    async with http.serving("127.0.0.1:0") as port:
        sender, sending = await asyncio.open_connection("127.0.0.1", port)
        sending.write(b"GET / HTTP/1.1\r\nHost:")
        reader, reading = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        reading.write(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")

        async def cut_off() -> bool:
            return not http._open

        await reader.readexactly(10)
        await eventually(cut_off)

        with contextlib.suppress(ConnectionResetError):
            assert await sender.read() == b""
        with contextlib.suppress(ConnectionResetError):
            assert len(await reader.read()) < MUCH
        sending.close()
        reading.close()


async def test_more_connections_than_there_may_be_are_refused_and_the_rest_is_served() -> None:
    async with HttpServer(big).serving("127.0.0.1:0") as port:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(server._CONNECTIONS_MAX)]
        assert await exchange(port, b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n") == ""
        idle.pop()[1].close()
        again = ""
        while not again:
            again = await exchange(port, b"HEAD /x HTTP/1.1\r\nHost: x\r\n\r\n")
        for _, writer in idle:
            writer.close()

    assert again.startswith("HTTP/1.1 200 ")


async def test_a_page_that_cannot_be_made_ends_its_connection_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fails(_: str) -> Answer:
        raise ValueError("no")

    async with HttpServer(fails).serving("127.0.0.1:0") as port:
        answers = [await exchange(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(2)]

    assert answers == ["", ""]
    assert [record.message for record in caplog.records] == ["page.failed"] * 2


@needs_chromium
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(("width", "height"), [(1200, 800), (390, 800)])
async def test_a_browser_shows_it_in_light_and_dark_wide_and_narrow(
    client: Client, n1: FakeAgent, browser: Page, tmp_path: Path, dark: bool, width: int, height: int
) -> None:
    await n1.start("e", "other", 2, name=EVIL, user=EVIL)
    await client.granted("e", "other", phase=EVIL)
    await two_turns(client)
    url = await link(client)
    browser.complaints.clear()

    def look() -> tuple[list[str], int, str, Any]:
        browser.open(url, width, height, dark=dark)
        browser.screenshot(tmp_path / "page.png")
        return (
            browser.value("[...document.querySelectorAll('h2')].map(each => each.textContent)"),
            browser.value("document.querySelectorAll('.lanes rect').length"),
            browser.value("getComputedStyle(document.body).backgroundColor"),
            browser.value("[window.evil, document.images.length, document.documentElement.scrollWidth]"),
        )

    headings, bars, paper, (evil, images, shown) = await asyncio.to_thread(look)

    assert headings == ["Groups and queue", "The last hour", "Savings of the last seven days", "Nodes"]
    assert bars >= 4
    assert paper == ("rgb(20, 24, 29)" if dark else "rgb(255, 255, 255)")
    assert (evil, images) == (None, 0)
    assert shown == width, "wide tables scroll by themselves"
    assert [text for text in browser.complaints if "favicon" not in text] == []
    assert (tmp_path / "page.png").stat().st_size > 5000
