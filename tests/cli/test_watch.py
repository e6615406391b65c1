"""`interleave status --watch`, the real program: its lines, its picture, and how it ends."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import pytest

from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from tests.cli.server import GivenOrchestrator, free_address, served

PROGRAM = str(Path(sys.executable).with_name("interleave"))
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d ")
pytestmark = pytest.mark.timeout(60)


def group(state: str, *jobs: str, name: str = "demo") -> pb.GroupStatus:
    """A group whose first job holds and whose others wait."""
    members = [
        pb.MemberStatus(job_id=job, user="alice", epoch=1 if not place else 0, queue_place=place)
        for place, job in enumerate(jobs)
    ]
    return pb.GroupStatus(name=name, state=state, members=members)


@contextmanager
def watching(address: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    argv = [PROGRAM, "status", "--watch", "--address", address, *options]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def words(process: subprocess.Popen[str]) -> list[str]:
    """Return the words of the next line behind its time."""
    text = line(process)
    assert STAMP.match(text), text
    return text.split()[1:]


def interrupted(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Press Ctrl-C; return the exit status and what else was said."""
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return process.returncode, out + err


def test_elsewhere_than_on_a_terminal_each_change_is_a_line_with_its_time() -> None:
    orchestrator = GivenOrchestrator(reply=pb.StatusReply(groups=[group("locked", "17", "18")]))
    with served(orchestrator) as address, watching(address) as process:
        assert line(process).split()[:3] == ["GROUP", "STATE", "JOBID"]
        assert set(line(process)) == {" ", "-"}
        assert words(process)[:5] == ["demo", "locked", "17", "alice", "holds"]
        assert words(process)[:6] == ["demo", "locked", "18", "alice", "waits", "(1)"]

        orchestrator.news.put(pb.WatchUpdate(groups=[group("locked", "17", "18")]))
        orchestrator.news.put(pb.WatchUpdate(groups=[group("locked", "18")]))
        assert words(process)[:5] == ["demo", "locked", "18", "alice", "holds"], "no line that is not new"
        assert words(process) == ["demo", "locked", "17", "gone"]

        orchestrator.news.put(pb.WatchUpdate(gone=["demo"]))
        assert words(process) == ["demo", "18", "gone"]

        assert interrupted(process) == (0, "")


def test_as_json_each_change_is_an_object() -> None:
    orchestrator = GivenOrchestrator(reply=pb.StatusReply(groups=[group("warm", "17")]))
    with served(orchestrator) as address, watching(address, "--json", "demo") as process:
        first = json.loads(line(process))
        orchestrator.news.put(pb.WatchUpdate(gone=["demo"]))
        second = json.loads(line(process))

        assert [g["state"] for g in first["groups"]] == ["warm"]
        assert (second["groups"], second["gone"]) == ([], ["demo"])
        assert second["time"] >= first["time"]
        assert interrupted(process) == (0, "")
    assert [request.group for request in orchestrator.requests] == ["demo"]


def test_a_restart_of_the_orchestrator_is_waited_for_and_what_changed_meanwhile_is_told() -> None:
    address = free_address()
    with ExitStack() as first:
        before = GivenOrchestrator(
            reply=pb.StatusReply(groups=[group("locked", "17"), group("idle", name="x")])
        )
        first.enter_context(served(before, address))
        with watching(address, "--noheader") as process:
            assert words(process)[:3] == ["demo", "locked", "17"]
            assert words(process) == ["x", "idle"]

            first.close()
            assert process.stderr is not None
            ours = (text for text in process.stderr if "chttp2" not in text)  # gRPC's own log
            assert next(ours) == "the orchestrator does not answer; waiting for it\n"
            after = GivenOrchestrator(reply=pb.StatusReply(groups=[group("locked", "18")]))
            with served(after, address):
                assert words(process)[:3] == ["demo", "locked", "18"]
                assert [words(process) for _ in range(2)] == [["demo", "locked", "17", "gone"], ["x", "gone"]]
                assert interrupted(process)[0] == 0


def test_a_reader_who_is_gone_ends_it_although_nothing_changes() -> None:
    orchestrator = GivenOrchestrator(reply=pb.StatusReply(groups=[group("locked", "17")]))
    with served(orchestrator) as address, watching(address) as process:
        line(process)
        assert process.stdout is not None
        process.stdout.close()

        process.wait(20)

        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_that_a_group_is_not_known_yet_is_said_while_it_is_waited_for() -> None:
    orchestrator = GivenOrchestrator(reply=pb.StatusReply())
    with served(orchestrator) as address, watching(address, "--noheader", "demo") as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "group demo is not known, or not to you; waiting for it\n"

        orchestrator.news.put(pb.WatchUpdate(groups=[group("warm", "17")]))
        assert words(process)[:3] == ["demo", "warm", "17"]


@pytest.mark.parametrize("reachable", [True, False])
def test_a_refusal_or_no_orchestrator_at_first_is_one_line(reachable: bool) -> None:
    orchestrator = GivenOrchestrator(refusal=(grpc.StatusCode.UNAUTHENTICATED, "who?", "NotAuthenticated"))
    with served(orchestrator) as there, watching(there if reachable else free_address()) as process:
        out, err = process.communicate(timeout=60)

    assert (process.returncode, out, err.count("\n")) == (1, "", 1)
    assert ("who?" if reachable else "cannot be reached") in err


def test_a_terminal_shows_the_present_state_until_ctrl_c() -> None:
    orchestrator = GivenOrchestrator(reply=pb.StatusReply(groups=[group("locked", "17")]))
    with served(orchestrator) as address:
        terminal, inside = pty.openpty()
        process = subprocess.Popen(
            [PROGRAM, "status", "-w", "--address", address],
            stdin=inside,
            stdout=inside,
            stderr=inside,
            env={**os.environ, "TERM": "xterm"},
        )
        os.close(inside)
        shown = until(terminal, "holds")
        orchestrator.news.put(pb.WatchUpdate(groups=[group("locked", "18", "17")]))
        shown += until(terminal, "waits (1)")
        orchestrator.news.put(pb.WatchUpdate(gone=["demo"]))
        shown += until(terminal, "no group")

        process.send_signal(signal.SIGINT)

        assert process.wait(20) == 0
    os.close(terminal)
    assert "Traceback" not in shown
    assert "\x1b[?25l" in shown, "it is drawn, not written line by line"


def until(terminal: int, wanted: str) -> str:
    shown = ""
    while wanted not in shown:
        shown += os.read(terminal, 65_536).decode()
    return shown
