from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from slurm_interleave.node_agent import hook
from slurm_interleave.node_agent.agent import Agent
from tests.node_agent.fakes import FakeOrchestrator

PROGRAM = str(Path(sys.executable).with_name("interleave-hook"))


def run(*args: str, timeout_s: float | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *args], capture_output=True, text=True, check=False, timeout=timeout_s)


def test_a_list_of_devices_may_have_ranges_and_uuids() -> None:
    uuid = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
    assert hook.devices("0,2-4, 7") == [0, 2, 3, 4, 7]
    assert hook.devices(f"{uuid},1") == [uuid, 1]
    assert hook.devices("1-x,") == ["1-x", ""]


def test_a_job_is_over_since_the_time_that_slurm_says_or_else_since_now() -> None:
    before = int(time.time())

    said, unsaid = [
        hook.request_of(hook._parser().parse_args(["job-over", "--job=17", *more]))["ended"]
        for more in (["--ended=1772203535"], [])
    ]

    assert said == "1772203535"
    assert before <= int(str(unsaid)) <= time.time()


def test_no_daemon_means_a_line_with_the_socket_and_exit_1(tmp_path: Path) -> None:
    done = run("job-end", "--job=17", f"--socket={tmp_path}/agent.sock")

    assert done.returncode == 1
    assert done.stderr.startswith(f"interleave-hook: job-end of job 17: {tmp_path}/agent.sock: no answer: ")
    assert "Traceback" not in done.stderr


def test_a_daemon_that_does_not_answer_means_the_same_before_slurm_loses_patience(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()

        done = run("job-start", "--job=17", f"--socket={path}", timeout_s=20)

    assert done.returncode == 1
    assert done.stderr.startswith(f"interleave-hook: job-start of job 17: {path}: no answer: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("takes_s", [0.5, 3.0])
def test_a_daemon_that_answers_a_byte_at_a_time_has_the_limit_for_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, takes_s: float
) -> None:
    path, now, answer = tmp_path / "agent.sock", [0.0], b'{"ok": true}\n'
    limits = list[float]()

    class Slow(socket.socket):
        def settimeout(self, value: float | None, /) -> None:
            limits.append(value or 0)
            super().settimeout(value)

        def recv(self, _size: int, /, _flags: int = 0) -> bytes:
            now[0] += takes_s / len(answer)
            return super().recv(1)

    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(path))
        daemon.listen()

        def serve() -> None:
            with daemon.accept()[0] as link:
                link.recv(65_536)
                link.sendall(answer)

        serving = threading.Thread(target=serve)
        serving.start()
        monkeypatch.setattr(hook.socket, "socket", Slow)
        monkeypatch.setattr(hook.time, "monotonic", lambda: now[0])
        try:
            if takes_s < hook._LIMIT_S:
                assert hook.ask(str(path), {}) == {"ok": True}
            else:
                with pytest.raises(TimeoutError, match="time is up"):
                    hook.ask(str(path), {})
        finally:
            serving.join()

    assert limits == sorted(limits, reverse=True)
    assert max(limits) <= hook._LIMIT_S


def test_it_loads_nothing_heavy() -> None:
    code = "import sys; from slurm_interleave.node_agent import hook; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()

    heavy = {"grpc", "asyncio", "numpy", "slurm_interleave.client", "google.protobuf"}
    assert heavy.isdisjoint(loaded)


async def test_devices_may_be_named_by_uuid_or_its_begin(
    agent: Agent, folder: Path, orchestrator: FakeOrchestrator
) -> None:
    where = f"--socket={folder}/run/agent.sock"
    args = ("job-start", "--job=17", "--uid=0", "--gid=0", "--group=demo", where)

    vague, strange, empty = [
        await asyncio.to_thread(run, *args, f"--devices={devices}") for devices in ("SIM-n1-", "GPU-1", "0,")
    ]
    start = await asyncio.to_thread(run, *args, "--devices=sim-n1-1")
    started = await orchestrator.hears("started")

    assert "'SIM-n1-' is the UUID of 2 devices here; there are SIM-n1-0, SIM-n1-1" in vague.stderr
    assert "'GPU-1' is the UUID of 0 devices here" in strange.stderr
    assert "'' is the UUID of 0 devices here" in empty.stderr
    assert start.returncode == 0
    assert list(started.devices) == [1]


async def test_it_starts_and_ends_a_job(agent: Agent, folder: Path, orchestrator: FakeOrchestrator) -> None:
    where = f"--socket={folder}/run/agent.sock"
    who = ["--uid=0", "--gid=0", "--user=alice", "--group=demo", "--devices=0-1", "--account=physics"]

    start = await asyncio.to_thread(run, "job-start", "--job=17", *who, where)
    started = await orchestrator.hears("started")
    end = await asyncio.to_thread(run, "job-end", "--job=17", where)

    assert (start.returncode, end.returncode) == (0, 0)
    assert (started.user, started.account, list(started.devices)) == ("alice", "physics", [0, 1])
    assert (await orchestrator.hears("over")).job_id == "17"


async def test_a_refusal_is_passed_on(agent: Agent, folder: Path) -> None:
    args = ("job-start", "--job=17", "--uid=0", "--gid=0", "--group=a b", "--devices=0")
    done = await asyncio.to_thread(run, *args, f"--socket={folder}/run/agent.sock")

    assert done.returncode == 1
    assert "refused: group name 'a b' is not allowed" in done.stderr
