"""Jobs without Slurm: real daemons, real processes, `interleave register` and the client by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lab import LocalLab
from lab.processes import wait_until
from slurm_interleave.client.connect import ClientConfig, open_channel
from slurm_interleave.client.core.config import load_section
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc

pytestmark = pytest.mark.timeout(60)

INTERLEAVE = str(Path(sys.executable).with_name("interleave"))
GROUPS: dict[str, dict[str, Any]] = {
    "rl": {"nodes": ["local"], "devices": [0]},
    "wide": {"nodes": ["local", "other"], "devices": [1]},
    "theirs": {"nodes": ["local"], "devices": [1], "users": ["nobody-else"]},
    "elsewhere": {"nodes": ["other"], "devices": [0]},
}
CONFIG = {"turns": {"policy": "priority"}, **{f"groups.{name}": group for name, group in GROUPS.items()}}
TURN = """
import sys
from slurm_interleave.client import Interleaver
with Interleaver.from_env().turn("train") as lease:
    print("granted", lease.epoch, flush=True)
    sys.stdin.readline()
print("yielded", flush=True)
sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[LocalLab]:
    with LocalLab.start(config=CONFIG, nodes=("local", "other")) as started:
        yield started


class Running:
    """A process of a test, which is talked to over its standard streams."""

    all: ClassVar[list[Running]] = []

    def __init__(self, lab: LocalLab, *argv: str, env: Mapping[str, str] | None = None) -> None:
        environ = {**lab.env, **(env or {})}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            argv, env=environ, stdin=pipe, stdout=pipe, stderr=pipe, text=True, bufsize=1
        )
        self.all.append(self)

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")

    def end(self) -> tuple[str, int]:
        """Return what it wrote to stderr, and its exit status."""
        _, error = self.process.communicate(timeout=60)
        return error, self.process.returncode

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(autouse=True)
def nothing_left(lab: LocalLab) -> Iterator[None]:
    """End what a test has started; then no job is registered any more."""
    yield
    for each in Running.all:
        each.kill()
        each.process.communicate()
    Running.all.clear()
    assert wait_until(lambda: not any(group.members for group in groups(lab).values()), 60)


def register(lab: LocalLab, *argv: str, env: Mapping[str, str] | None = None) -> Running:
    return Running(lab, INTERLEAVE, "register", *argv, env=env)


def turn(lab: LocalLab, group: str = "rl", *options: str, **env: str) -> Running:
    return register(lab, "--group", group, *options, "--", sys.executable, "-c", TURN, env=env)


def groups(lab: LocalLab) -> dict[str, pb.GroupStatus]:
    client = load_section(ClientConfig, "client", lab.config)
    with open_channel(client.orchestrator) as channel:
        reply = rpc.InterleaveStub(channel).GetStatus(pb.StatusRequest(), timeout=10)
    return {group.name: group for group in reply.groups}


def members(lab: LocalLab, group: str = "rl") -> list[str]:
    return [member.job_id for member in groups(lab)[group].members]


def test_a_declared_group_is_there_before_its_first_job(lab: LocalLab) -> None:
    assert {*GROUPS} <= set(groups(lab))
    done = subprocess.run(
        [INTERLEAVE, "status", "theirs"], env=lab.env, capture_output=True, text=True, check=True
    )
    assert "theirs" in done.stdout


def test_two_registered_commands_take_turns(lab: LocalLab) -> None:
    a = turn(lab)
    assert a.says().startswith("granted")
    b = turn(lab)
    assert wait_until(lambda: groups(lab)["rl"].members[-1].queue_place, 60)

    a.go_on()
    assert a.says() == "yielded"
    assert b.says().startswith("granted")
    for each in (a, b):
        assert each.end()[1] == 0

    assert wait_until(lambda: members(lab) == [], 60)


def test_a_job_that_is_nice_comes_after_the_others(lab: LocalLab) -> None:
    a = turn(lab)
    assert a.says().startswith("granted")
    nice = turn(lab, "rl", "--nice", "5")
    assert wait_until(lambda: len(_waiting(lab)) == 1, 60)
    other = turn(lab)
    assert wait_until(lambda: len(_waiting(lab)) == 2, 60)

    a.go_on()

    assert other.says().startswith("granted")
    other.go_on()
    assert nice.says().startswith("granted")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_holder_that_dies_frees_its_devices_at_once(lab: LocalLab, number: signal.Signals) -> None:
    a = turn(lab)
    assert a.says().startswith("granted")
    b = turn(lab)
    assert wait_until(lambda: len(members(lab)) == 2, 60)

    a.process.send_signal(number)

    assert b.says().startswith("granted")


def test_what_a_job_leaves_running_ends_with_it(lab: LocalLab) -> None:
    script = "sleep 300 & echo $!; exit 3"
    job = register(lab, "--group", "rl", "--", "sh", "-c", script)
    pid = int(job.says())

    assert wait_until(lambda: not _alive(pid), 60)
    job.process.wait(10)
    assert job.process.returncode == 3


def test_a_script_registers_itself_and_what_it_starts(lab: LocalLab) -> None:
    joins = f'eval "$({INTERLEAVE} register -G rl --pid $$)"'
    script = f'{joins}; echo $INTERLEAVE_JOB_ID; {sys.executable} -c "$TURN"'
    job = Running(lab, "bash", "-c", script, env={"TURN": TURN})

    assert job.says().endswith(f"+local-{job.process.pid}")
    assert job.says().startswith("granted")


def test_the_client_registers_by_itself(lab: LocalLab) -> None:
    job = Running(lab, sys.executable, "-c", TURN, env={"INTERLEAVE_GROUP": "rl"})

    assert job.says().startswith("granted")
    assert [name.rpartition("-")[2] for name in members(lab)] == [str(job.process.pid)]


def test_processes_that_name_one_job_are_one_job(lab: LocalLab) -> None:
    variables = {"INTERLEAVE_GROUP": "rl", "INTERLEAVE_JOB": "both"}
    script = (
        "import os; from slurm_interleave.client import Interleaver; Interleaver.from_env(); "
        "print(os.environ['INTERLEAVE_JOB_ID'], os.environ['INTERLEAVE_TOKEN'], flush=True); input()"
    )
    a = Running(lab, sys.executable, "-c", script, env=variables)
    first = a.says()
    b = Running(lab, sys.executable, "-c", script, env=variables)

    assert b.says() == first
    assert members(lab) == [first.split()[0]]


def test_a_job_on_two_nodes_holds_the_devices_of_both(lab: LocalLab) -> None:
    options = ("--job", "big", "--nodes", "local,other")
    a = turn(lab, "wide", *options)
    assert wait_until(lambda: [m.queue_place for m in groups(lab)["wide"].members] == [1], 60)
    there = {"INTERLEAVE_CLIENT_AGENT_SOCKET": str(lab.root / "run" / "other" / "register.sock")}
    b = register(lab, "--group", "wide", *options, "--", "sleep", "300", env=there)

    assert a.says().startswith("granted")
    [member] = groups(lab)["wide"].members
    assert {context.node for context in member.contexts} == {"local", "other"}
    b.kill()
    assert wait_until(lambda: members(lab, "wide") == [], 60), "a job that ends on one node is over"
    a.kill()


def test_a_registered_job_outlives_a_killed_agent_and_its_end_is_seen_after_it(lab: LocalLab) -> None:
    a, b = turn(lab), register(lab, "--group", "rl", "--", "sleep", "300")
    assert a.says().startswith("granted")
    assert wait_until(lambda: len(members(lab)) == 2, 60)
    lab.kill9("agent-local")
    b.kill()
    lab.start_again("agent-local")

    assert wait_until(lambda: len(members(lab)) == 1, 60)
    a.go_on()
    assert a.says() == "yielded"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            ["--group", "unknown"],
            "group unknown is not declared for node local; declared are rl, theirs, wide",
        ),
        (["--group", "elsewhere"], "group elsewhere is not declared for node local"),
        (["--group", "rl", "--nodes", "local,mars"], "all must be nodes of group rl: local"),
        (["--group", "wide", "--nodes", "other"], "this node, local, must be among them"),
        (["--group", "rl", "--job", "no spaces"], "is not allowed"),
    ],
)
def test_what_cannot_be_registered_is_refused_and_the_command_not_run(
    lab: LocalLab, arguments: list[str], reason: str
) -> None:
    error, status = register(lab, *arguments, "--", "touch", str(lab.root / "was-run")).end()

    assert status == 1
    assert reason in error
    assert not (lab.root / "was-run").exists()


def test_a_client_whose_agent_is_away_is_told_why_it_cannot_join(lab: LocalLab) -> None:
    away = {"INTERLEAVE_GROUP": "rl", "INTERLEAVE_CLIENT_AGENT_SOCKET": "/nowhere/register.sock"}

    error, status = Running(lab, sys.executable, "-c", TURN, env=away).end()

    assert status == 1
    assert "NotRegistered: this process cannot join group rl: the interleave-agent of this node" in error
    assert "[groups.NAME] in interleave.toml" in error


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")
def test_a_user_registers_his_own_processes_alone_and_where_he_may(lab: LocalLab) -> None:
    script = (
        "import os, socket, sys, json; os.setgid(65534); os.setuid(65534); "
        "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
        "s.sendall(sys.argv[2].encode() + b'\\n'); print(s.makefile().readline())"
    )
    path = str(lab.root / "run" / "local" / "register.sock")

    def as_nobody(request: str) -> str:
        argv = [sys.executable, "-c", script, path, request]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout

    stolen = as_nobody(f'{{"verb": "register", "group": "rl", "pid": {os.getpid()}}}')
    assert f"process {os.getpid()} is not yours" in stolen
    closed = as_nobody('{"verb": "register", "group": "theirs"}')
    assert "group theirs is not open to user nobody" in closed
    raised = as_nobody('{"verb": "register", "group": "rl", "nice": -1}')
    assert "only root may raise a job" in raised
    assert '"job": "nobody+mine"' in as_nobody('{"verb": "register", "group": "rl", "job": "mine"}')


def _waiting(lab: LocalLab) -> list[str]:
    return [member.job_id for member in groups(lab)["rl"].members if member.queue_place]


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
