"""A database that goes away, or was never there."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from lab.databases import DatabaseServer
from slurm_interleave.client.core.errors import ConfigError, DatabaseFailed
from slurm_interleave.sql.rows import Member
from slurm_interleave.sql.slices import SliceFilter
from slurm_interleave.sql.store import Store
from tests.orchestrator.fake_agent import agent
from tests.orchestrator.processes import daemon
from tests.sql.given import MEMBER, SLICE, put

# PyMySQL leaves the socket of a refused connection to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(autouse=True)
def no_socket_is_left_to_other_tests() -> Iterator[None]:
    yield
    gc.collect()


def test_a_batch_into_a_lost_database_fails_in_one_line_and_a_restart_goes_on(server: DatabaseServer) -> None:
    url = server.fresh()
    with closing(Store(url)) as store:
        store.record(put(MEMBER), 1)
        server.kill9()
        with pytest.raises(DatabaseFailed, match=f"database {server.kind}://") as caught:
            store.record(put(SLICE), 2)
        assert "\n" not in str(caught.value)

        server.start()
        with pytest.raises(DatabaseFailed):
            store.record(put(SLICE), 2)

    with closing(Store(url)) as store:
        assert store.all(Member) == [MEMBER]
        store.record(put(SLICE), 2)


def test_reads_fail_while_the_database_is_away_and_work_again_when_it_is_back(server: DatabaseServer) -> None:
    with closing(Store(server.fresh())) as store:
        store.record(put(MEMBER, SLICE), 1)
        assert len(list(store.slices(SliceFilter()))) == 1
        server.kill9()
        for read in (lambda: store.all(Member), lambda: list(store.slices(SliceFilter()))):
            with pytest.raises(DatabaseFailed, match=f"database {server.kind}://"):
                read()

        server.start()
        assert store.all(Member) == [MEMBER]
        assert len(list(store.slices(SliceFilter()))) == 1


def test_a_server_that_is_not_there_is_named_without_its_password(server: DatabaseServer) -> None:
    url = server.fresh().replace("@", ":secret@")
    server.stop()

    with pytest.raises(ConfigError, match=f"database {server.kind}://.*cannot be opened") as caught:
        Store(url)

    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("orchestrator.db", r"is no URL; examples are sqlite:////var"),
        ("mysql://u:secret@h/d", r"mysql is not known; known are sqlite://.*mariadb://.*postgresql://"),
        ("postgresql+psycopg2://u:secret@h/d", r"postgresql\+psycopg2 is not known"),
        ("postgresql://u:secret@h:port/d", r"'postgresql://u:\*\*\*@h:port/d' is no URL"),
        (
            "postgresql://u:secret@127.0.0.1:1/d",
            r"database postgresql://u:\*\*\*@127.0.0.1:1/d cannot be opened",
        ),
        ("mariadb://u:secret@127.0.0.1:1/d", r"database mariadb://u:\*\*\*@127.0.0.1:1/d cannot be opened"),
        ("sqlite:////proc/none/x.db", r"database sqlite:////proc/none/x.db cannot be opened"),
    ],
)
def test_an_url_that_cannot_be_used_is_explained(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        Store(url)

    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_sqlite_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "orchestrator.db"
    with closing(Store(f"sqlite:///{path}")) as store:
        store.record(put(MEMBER), 1)

        assert [p.stat().st_mode & 0o077 for p in path.parent.iterdir()] == [0, 0, 0]


async def test_the_daemon_ends_with_a_message_and_starts_again_with_what_it_knew(
    server: DatabaseServer, tmp_path: Path
) -> None:
    with daemon(tmp_path, database=server.fresh()) as running:
        async with agent(running.address) as n1:
            await n1.start("17")
            await asyncio.to_thread(server.kill9)
            never = asyncio.create_task(n1.start("18"))
            assert running.process is not None
            assert await asyncio.to_thread(running.process.wait, 20) == 1
            never.cancel()
            await asyncio.gather(never, return_exceptions=True)
        text = running.text()
        assert f"interleaved: database {server.kind}://" in text
        assert "Traceback" not in text

        await asyncio.to_thread(server.start)
        await asyncio.to_thread(running.start)
        with closing(Store(running.keys["database"])) as store:
            assert "17" in {row.job_id for row in store.all(Member)}
