"""`interleaved` as a process: killed in the middle of everything, stopped, replaced, badly configured."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from slurm_interleave.client.interleaver import Interleaver
from slurm_interleave.client.session import Lease
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from tests.orchestrator.fake_agent import FakeAgent, agent
from tests.orchestrator.processes import Daemon, daemon
from tests.orchestrator.serving import Client, eventually


@pytest.fixture
async def interleaved(tmp_path: Path) -> AsyncIterator[Daemon]:
    with daemon(tmp_path) as running:
        yield running


def interleaver(daemon: Daemon, job: str, token: str) -> Interleaver:
    return Interleaver.from_env(
        {
            "INTERLEAVE_JOB_ID": job,
            "INTERLEAVE_GROUP": "demo",
            "INTERLEAVE_NODE": "n1",
            "INTERLEAVE_ORCHESTRATOR": daemon.address,
            "INTERLEAVE_TOKEN": token,
        }
    )


async def kill_and_restart(running: Daemon, n1: FakeAgent) -> None:
    await asyncio.to_thread(running.end, signal.SIGKILL)
    await n1.close()
    await asyncio.to_thread(running.start)
    await n1.connect()


async def test_killed_while_one_holds_and_two_wait_it_goes_on_where_it_was(interleaved: Daemon) -> None:
    client = Client(interleaved.address)
    async with agent(interleaved.address) as n1:
        tokens = {job: await n1.start(job) for job in "abc"}
        a, b, c = (interleaver(interleaved, job, token) for job, token in tokens.items())
        first = await asyncio.to_thread(a.acquire, "one")
        second = asyncio.create_task(asyncio.to_thread(b.acquire, "two", 30))
        await client.waiting(1)
        third = asyncio.create_task(asyncio.to_thread(c.acquire, "three", 30))
        await client.waiting(2)

        await kill_and_restart(interleaved, n1)

        [holder] = [m for m in (await client.status("demo")).groups[0].members if m.epoch]
        assert (holder.job_id, holder.epoch, holder.phase) == ("a", first.epoch, "one")
        assert not second.done()
        await asyncio.to_thread(a.yield_)
        leases: list[Lease] = [first, await asyncio.wait_for(second, 30)]
        assert not third.done()
        await kill_and_restart(interleaved, n1)
        assert not third.done()
        await asyncio.to_thread(b.yield_)
        leases.append(await asyncio.wait_for(third, 30))
        await asyncio.to_thread(c.yield_)

        assert [lease.epoch for lease in leases] == [1, 2, 3]
        assert [(row.job_id, row.phase, row.state) for row in await client.slices()] == [
            ("a", "one", "YIELDED"),
            ("b", "two", "YIELDED"),
            ("c", "three", "YIELDED"),
        ]
        for one in (a, b, c):
            one.close()
    await client.channel.close()


async def test_killed_again_and_again_under_load_it_grants_no_epoch_twice(interleaved: Daemon) -> None:
    client = Client(interleaved.address)
    async with agent(interleaved.address) as n1:
        tokens = {job: await n1.start(job) for job in "ab"}
        leases: list[int] = []
        inside: list[str] = []

        def take_turns(job: str) -> None:
            mine = interleaver(interleaved, job, tokens[job])
            for _ in range(40):
                with mine.turn(timeout=30) as lease:
                    inside.append(job)
                    leases.append(lease.epoch)
                    assert inside == [job], "two hold at one time"
                    inside.pop()
            mine.close()

        async def reached(count: int) -> bool:
            return len(leases) >= count

        jobs = [asyncio.create_task(asyncio.to_thread(take_turns, job)) for job in "ab"]
        for count in (10, 25, 40):
            await eventually(lambda count=count: reached(count))
            await kill_and_restart(interleaved, n1)
        await asyncio.wait_for(asyncio.gather(*jobs), 30)

        assert len(leases) == 80
        assert leases == sorted(set(leases))
        listed = [row.epoch for row in await client.slices()]
        assert set(leases) <= set(listed)
        assert len(listed) == len(set(listed))
    await client.channel.close()


async def test_it_stops_at_sigterm_although_calls_wait(interleaved: Daemon) -> None:
    client = Client(interleaved.address)
    async with agent(interleaved.address) as n1:
        await n1.start("a")
        await n1.start("b")
        await client.lock("a")
        waiting = client.lock("b")
        await client.waiting(1)

        status = await asyncio.to_thread(interleaved.end, signal.SIGTERM)

        assert status == 0
        assert "event=stopped" in interleaved.text()
        assert "Traceback" not in interleaved.text()
        assert (await waiting.code()).name in ("CANCELLED", "UNAVAILABLE")
    await client.channel.close()


async def test_a_second_one_on_the_database_takes_over_and_the_first_ends(
    interleaved: Daemon, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with daemon(other, database=interleaved.keys["database"]) as second:
        fake = FakeAgent(interleaved.address)
        fake.jobs["a"] = pb.JobReport(job_id="a", group="demo", attempt="1", devices=[0], context="none")
        with contextlib.suppress(grpc.aio.AioRpcError):
            await fake.connect()  # makes the first one write
        assert interleaved.process is not None
        status = await asyncio.to_thread(interleaved.process.wait, 10)
        await fake.close()

        assert status == 1
        assert "interleaved: another orchestrator has started on this database" in interleaved.text()
        assert "Traceback" not in interleaved.text()
        client = Client(second.address)
        async with agent(second.address) as n1:
            await n1.start("a")
            assert (await client.lock("a")).success
        await client.channel.close()


ANY_PORT = 'listen = "127.0.0.1:0"'


def config_file(folder: Path, *lines: str) -> Path:
    path = folder / "interleave.toml"
    path.write_text("\n".join(["[orchestrator]", *lines, "[placement]", "enabled = false", ""]))
    return path


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('lisen = "127.0.0.1:1"', "has no key 'lisen'; did you mean 'listen'?"),
        ('listen = "0.0.0.0:0"', "would let anybody on the network take the devices"),
        (f'database = "oracle"\n{ANY_PORT}', "database = 'oracle' is no"),
        (f'database = "sqlite:////proc/x/y.db"\n{ANY_PORT}', "/proc/x"),
        ("[orchestrator", "cannot be read as TOML"),
    ],
)
def test_a_bad_configuration_ends_it_with_one_line(tmp_path: Path, line: str, said: str) -> None:
    config = config_file(tmp_path, 'auth = "none"', f'socket = "{tmp_path}/s.sock"', line)
    argv = [sys.executable, "-m", "slurm_interleave.orchestrator", "--config", str(config)]

    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)

    assert done.returncode == 1
    [last] = [text for text in done.stderr.splitlines() if text.startswith("interleaved: ")]
    assert said in last
    assert "Traceback" not in done.stderr


def test_an_address_in_use_ends_it_with_one_line(tmp_path: Path) -> None:
    with daemon(tmp_path) as running:
        config = config_file(
            tmp_path,
            'auth = "none"',
            f'listen = "{running.address}"',
            f'socket = "{tmp_path}/second.sock"',
            f'database = "sqlite:///{tmp_path}/second.db"',
        )
        argv = [sys.executable, "-m", "slurm_interleave.orchestrator", "--config", str(config)]

        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)

    assert done.returncode == 1
    assert f"interleaved: [orchestrator] listen = '{running.address}' cannot be used" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_folder_of_its_socket_is_open_to_users_since_jobs_may_have_theirs_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "interleave"

    with daemon(tmp_path, socket=f"{folder}/interleaved.sock"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o755
        assert stat.S_IMODE((folder / "interleaved.lock").stat().st_mode) == 0o600
