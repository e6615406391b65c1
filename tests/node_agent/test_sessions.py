from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from slurm_interleave.node_agent import sessions
from slurm_interleave.node_agent.attendance import Register
from slurm_interleave.node_agent.state import Job, Request, State

CONNECTED = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(); input()"


def test_those_connected_to_a_socket_are_found_among_others(tmp_path: Path) -> None:
    path, other = tmp_path / "socket", tmp_path / "other"
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as elsewhere:
        for listening, where in ((server, path), (elsewhere, other)):
            listening.bind(str(where))
            listening.listen()
        argv, pipes = (
            [sys.executable, "-c", CONNECTED, str(path)],
            {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE},
        )
        with subprocess.Popen(argv, **pipes) as caller:  # type: ignore[call-overload]
            caller.stdout.readline()
            accepted, _ = server.accept()
            pids = [os.getpid(), caller.pid, (1 << 31) - 1]

            assert sessions.of(path, pids) == [caller.pid]
            assert sessions.of(other, pids) == []
            accepted.close()
            caller.kill()
            caller.wait()
            assert sessions.of(path, pids) == []


SERVED = """
import sys, grpc
channel = grpc.insecure_channel(f"unix:{sys.argv[1]}", options=[("grpc.max_reconnect_backoff_ms", 100)])
while True:
    grpc.channel_ready_future(channel).result(20)
    print("connected", flush=True)
    input()
"""


async def test_those_who_are_unplugged_are_kept_off_while_others_stay_and_are_let_in_again(
    folder: Path,
) -> None:
    path = folder / "socket"
    server = grpc.aio.server()
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    argv, pipes = [sys.executable, "-c", SERVED, str(path)], {"stdin": -1, "stdout": -1, "text": True}
    clients = [subprocess.Popen(argv, **pipes) for _ in range(2)]  # type: ignore[call-overload] # noqa: ASYNC220
    one, other = clients
    for client in clients:
        assert await asyncio.to_thread(client.stdout.readline)

    async with sessions.unplugged(path, [one.pid]):
        within = sessions.of(path, [one.pid, other.pid])
        late = path.exists()
        one.stdin.write("\n")
        one.stdin.flush()
    again = await asyncio.to_thread(one.stdout.readline)

    assert (within, late, again) == ([other.pid], False, "connected\n")
    assert sessions.of(path, [one.pid, other.pid]) == [one.pid, other.pid]
    for client in clients:
        client.kill()
        client.communicate()
    await server.stop(0)


def test_a_number_that_is_of_another_socket_meanwhile_is_left_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent's other threads close and accept connections while one is looked for."""
    path = folder / "socket"
    ours, theirs = socket.socketpair()
    with ours, theirs, socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as caller:
        server.bind(str(path))
        server.listen()
        caller.connect(str(path))
        accepted, _ = server.accept()
        with accepted:
            name = str(Path(f"/proc/self/fd/{accepted.fileno()}").readlink())
            monkeypatch.setattr(sessions, "_descriptors", lambda: [(ours.fileno(), name)])
            assert sessions._cut(path, [os.getpid()])
            ours.sendall(b"still there")
            assert theirs.recv(20) == b"still there"

            monkeypatch.setattr(sessions, "_descriptors", lambda: [(accepted.fileno(), name)])
            assert sessions._cut(path, [os.getpid()])
            assert caller.recv(1) == b""


async def test_a_job_that_ends_while_it_is_unplugged_leaves_nothing_to_be_put_back(folder: Path) -> None:
    job = folder / "17"
    job.mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(job / "socket"))
        server.listen()
        async with sessions.unplugged(job / "socket", [os.getpid()]):
            shutil.rmtree(job)
    assert not job.exists()


async def test_where_no_socket_could_be_served_nobody_is_unplugged(folder: Path) -> None:
    async with sessions.unplugged(folder / "socket", [os.getpid()]):
        pass
    assert not (folder / "socket").exists()


@pytest.mark.parametrize("calls_v1alpha1", [False, True])
async def test_callers_that_would_not_call_again_stay_connected(
    folder: Path, *, calls_v1alpha1: bool
) -> None:
    state = State(folder / "state")
    job = state.jobs["17"] = Job(Request("17", "demo", "", (0,), 0, 0), "a", "token")
    register = Register(state, lambda _: None, lambda _: None, lambda _: folder)
    if calls_v1alpha1:
        register.asked(job)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket"))

        async with register.unplugged(job, []):
            assert (folder / "socket").exists() == calls_v1alpha1
        assert (folder / "socket").exists()
