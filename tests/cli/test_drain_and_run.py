"""`interleave drain`, and `interleave run` where there is nothing to resume."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest

from lab.processes import wait_until
from slurm_interleave.client import testing
from slurm_interleave.client.cli import drain_command
from slurm_interleave.client.cli.interleave import main
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc
from tests.cli.conftest import Call
from tests.cli.server import GivenOrchestrator, served

PROGRAM = Path(sys.executable).with_name("interleave")


@pytest.fixture
def orchestrator(monkeypatch: pytest.MonkeyPatch) -> Iterator[GivenOrchestrator]:
    given = GivenOrchestrator()
    given.drained = [
        pb.DrainUpdate(job_id="17", ok=True, bytes=3 << 29, seconds=2.5),
        pb.DrainUpdate(job_id="18", error="it holds its devices now"),
    ]
    with served(given) as address:
        monkeypatch.setenv("INTERLEAVE_CLIENT_ORCHESTRATOR", address)
        yield given


@pytest.fixture
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scontrol that writes down what it is told."""
    program = tmp_path / "scontrol"
    program.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/told\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path / "told"


def test_each_job_has_a_line_and_those_that_run_on_their_reason(
    call: Call, orchestrator: GivenOrchestrator, scontrol: Path
) -> None:
    done = call(main, "drain", "n1")

    assert scontrol.read_text() == "update NodeName=n1 State=DRAIN Reason=interleave drain\n"
    assert orchestrator.requests == [pb.DrainRequest(node="n1")]
    assert done.status == 1
    assert done.lines == ["job 17: saved (1.50G in 2.500 s) and requeued"]
    assert done.err.splitlines()[0] == "job 18: runs on: it holds its devices now"
    assert "1 jobs were not saved" in done.err


def test_a_node_can_stay_open_for_other_jobs(
    call: Call, orchestrator: GivenOrchestrator, scontrol: Path
) -> None:
    del orchestrator.drained[1]

    assert call(main, "drain", "n1", "--keep-node").status == 0
    assert not scontrol.exists()


def test_where_slurm_does_not_drain_the_node_nothing_is_saved(
    call: Call, orchestrator: GivenOrchestrator, scontrol: Path
) -> None:
    scontrol.with_name("scontrol").write_text(
        "#!/bin/sh\necho slurm_update error: Invalid node name >&2; exit 1\n"
    )

    done = call(main, "drain", "n1")

    assert done.status == 1
    assert "nothing was saved: slurm_update error: Invalid node name" in done.err
    assert orchestrator.requests == []


def test_where_slurm_gives_no_answer_nothing_is_saved(
    call: Call, orchestrator: GivenOrchestrator, scontrol: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain_command, "_SCONTROL_S", 0.1)
    scontrol.with_name("scontrol").write_text("#!/bin/sh\nexec sleep 1000\n")

    done = call(main, "drain", "n1")

    assert done.status == 1
    assert "scontrol gave no answer within 0.1 s; nothing was saved" in done.err
    assert orchestrator.requests == []


def run(*command: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", **more}
    return subprocess.run(
        [PROGRAM, "run", *command], env=environment, capture_output=True, text=True, timeout=30, check=False
    )


def test_outside_of_our_jobs_a_command_just_runs() -> None:
    done = run("sh", "-c", "echo out; echo err >&2; exit 7")

    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")


def test_much_output_arrives_whole_and_in_order() -> None:
    assert run("seq", "200000").stdout.splitlines() == [str(number) for number in range(1, 200_001)]


def test_output_and_error_of_one_file_keep_their_order(tmp_path: Path) -> None:
    script = "for i in 1 2 3 4 5; do echo out $i; echo err $i >&2; done"
    with (tmp_path / "out").open("w") as out:
        subprocess.run([PROGRAM, "run", "sh", "-c", script], stdout=out, stderr=out, check=True)

    lines = (tmp_path / "out").read_text().splitlines()
    assert lines == [f"{word} {number}" for number in range(1, 6) for word in ("out", "err")]


def test_options_of_the_command_are_its_own() -> None:
    assert run("echo", "--help", "-x").stdout == "--help -x\n"


def test_a_command_that_a_signal_ends_is_told_as_a_shell_does() -> None:
    assert run("sh", "-c", "kill -9 $$").returncode == 137


def test_a_command_that_does_not_exist_is_one_line() -> None:
    done = run("no-such-command")

    assert done.returncode == 127
    assert done.stderr == "interleave run: no-such-command cannot be run: No such file or directory\n"


def test_what_the_command_leaves_running_does_not_hold_it_up() -> None:
    assert run("sh", "-c", "sleep 5 & echo done").stdout == "done\n"


def test_a_command_with_turns_of_its_own_is_not_waited_for(tmp_path: Path) -> None:
    nobody = {"INTERLEAVE_GROUP": "demo", "INTERLEAVE_JOB_ID": "17", "INTERLEAVE_ORCHESTRATOR": "127.0.0.1:1"}

    done = run("--own-turns", "echo", "begins", INTERLEAVE_TOKEN="secret", **nobody)

    assert (done.stdout, done.stderr) == ("begins\n", "")


def test_a_job_that_nobody_has_registered_does_not_begin() -> None:
    done = run("echo", "begins", INTERLEAVE_GROUP="demo", SLURM_JOB_ID="17")

    assert (done.returncode, done.stdout) == (1, "")
    assert "job 17 of group demo is not registered" in done.stderr


class Resuming(rpc.JobAgentServicer):
    """An agent that has brought a job's processes back, and lets them end when it is told to."""

    def __init__(self) -> None:
        self.may_end = threading.Event()

    def Attend(self, _request: pb.AttendRequest, _context: Any) -> pb.AttendReply:
        return pb.AttendReply()

    def Resume(self, _request: pb.ResumeRequest, _context: Any) -> Iterator[pb.ResumeUpdate]:
        yield pb.ResumeUpdate(pid=1 << 22)
        self.may_end.wait(30)
        yield pb.ResumeUpdate(exit_code=7)


@pytest.mark.parametrize("own", [False, True])
def test_processes_that_came_back_get_a_turn_unless_they_ask_themselves(tmp_path: Path, own: bool) -> None:
    agent, server = Resuming(), grpc.server(futures.ThreadPoolExecutor(4))
    rpc.add_JobAgentServicer_to_server(agent, server)  # type: ignore[no-untyped-call]
    socket = f"unix:{tmp_path}/socket"
    server.add_insecure_port(socket)
    server.start()
    with testing.orchestrator() as turns:
        variables = {"INTERLEAVE_RESUME": "1", "INTERLEAVE_SOCKET": socket, "PATH": "/usr/bin:/bin"}
        argv = [str(PROGRAM), "run", *["--own-turns"] * own, "echo", "begins"]
        resumed = subprocess.Popen(
            argv, env={**turns.environ("17"), **variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert wait_until(lambda: turns.holder() == "17", 1 if own else 30) is not own

        agent.may_end.set()
        out, _ = resumed.communicate(timeout=60)

        assert (out, resumed.returncode) == (b"", 7)
        assert turns.holder() == ""
    server.stop(None).wait()


@pytest.mark.parametrize("seconds", ["0", "-1", "soon"])
def test_a_time_that_cannot_be_is_refused(seconds: str) -> None:
    assert run(f"--idle-yield={seconds}", "echo").returncode == 2


def test_idleness_is_not_for_a_command_with_turns_of_its_own() -> None:
    done = run("--idle-yield=5", "--own-turns", "echo")

    assert done.returncode == 1
    assert "leave --own-turns out" in done.stderr


def test_tasks_of_a_step_begin_together_and_end_each_with_its_own_code() -> None:
    with testing.orchestrator() as turns:
        other = turns.job("other")
        other.acquire()
        step = {
            **turns.environ("17"),
            "PATH": "/usr/bin:/bin",
            "SLURM_STEP_NUM_TASKS": "2",
            "SLURM_STEP_ID": "0",
        }
        tasks = [
            subprocess.Popen(
                [PROGRAM, "run", "sh", "-c", f"echo begins; exit {rank}"],
                env={**step, "SLURM_PROCID": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in (1, 0)
        ]
        turns.until_waiting("17")
        assert [task.poll() for task in tasks] == [None, None]
        other.yield_()
        told = [task.communicate(timeout=60) for task in tasks]

        assert [out for out, _ in told] == ["begins\n"] * 2
        assert [task.returncode for task in tasks] == [1, 0]
        assert "rank 1 failed: exit code 1" in told[1][1]
        assert turns.holder() == ""


def test_where_the_agent_is_away_it_begins_from_the_start(tmp_path: Path) -> None:
    done = run("echo", "begins", INTERLEAVE_RESUME="1", INTERLEAVE_SOCKET=f"unix:{tmp_path}/none")

    assert done.stdout == "begins\n"
    assert "cannot resume, so it begins from the start" in done.stderr
