"""A command under `interleave run` gets each signal once, whoever was sent it."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("interleave")
SIGNALS = ["SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2"]
# Says each signal that it gets, and ends by so many.
COMMAND = """
import signal, sys
numbers = [getattr(signal, name) for name in sys.argv[2:]]
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
print("ready", flush=True)
for _ in range(int(sys.argv[1])):
    print(signal.sigwait(numbers).name, flush=True)
raise SystemExit(7)
"""


@pytest.fixture(autouse=True)
def none_is_ignored() -> Iterator[None]:
    """What the tests were started with ignored, as under nohup, would stay ignored in `interleave run`."""
    numbers = [getattr(signal, name) for name in SIGNALS]
    ignored = [number for number in numbers if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def running(*argv: str, signals: int = 2) -> Iterator[subprocess.Popen[str]]:
    command = [*argv, str(PROGRAM), "run", sys.executable, "-c", COMMAND, str(signals), *SIGNALS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert said(process) == "ready"
            yield process
        finally:
            for pid in reversed(tree(process.pid)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def tree(pid: int) -> list[int]:
    """Return a process and all that it started, as Slurm finds them."""
    try:
        parts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    return [pid, *(below for part in parts for child in part.split() for below in tree(int(child)))]


def witness_of(pid: int) -> int:
    [one] = [one for one in tree(pid) if b"run_witness.py" in Path(f"/proc/{one}/cmdline").read_bytes()]
    return one


def send_to_all(process: subprocess.Popen[str], name: str) -> None:
    for pid in tree(process.pid):
        os.kill(pid, getattr(signal, name))


def test_a_signal_that_the_kernel_gives_to_any_thread_of_run_is_passed_on() -> None:
    kernel = ctypes.CDLL(None, use_errno=True)
    with running(signals=20) as process:
        threads = [int(task.name) for task in Path(f"/proc/{process.pid}/task").iterdir()]
        assert len(threads) > 1
        for thread in threads:
            assert kernel.tgkill(process.pid, thread, int(signal.SIGUSR1)) == 0
            assert said(process) == "SIGUSR1"


@pytest.mark.parametrize("name", SIGNALS)
def test_what_run_alone_is_sent_its_command_gets_once(name: str) -> None:
    with running() as process:
        os.killpg(process.pid, getattr(signal, name))  # as a terminal does
        assert said(process) == name
        os.kill(process.pid, signal.SIGTERM)

        assert said(process) == "SIGTERM"
        assert process.wait(30) == 7


@pytest.mark.parametrize("name", SIGNALS)
def test_what_all_processes_are_sent_its_command_gets_once(name: str) -> None:
    with running() as process:
        send_to_all(process, name)
        assert said(process) == name
        other = "SIGINT" if name != "SIGINT" else "SIGQUIT"
        os.kill(process.pid, getattr(signal, other))  # which would come behind the same again

        assert said(process) == other
        assert process.wait(30) == 7


def test_signals_that_all_processes_are_sent_one_upon_the_other_the_command_gets_once_each() -> None:
    with running(signals=4) as process:
        for name in ("SIGUSR1", "SIGUSR2", "SIGTERM"):
            send_to_all(process, name)
        assert sorted(said(process) for _ in range(3)) == ["SIGTERM", "SIGUSR1", "SIGUSR2"]
        os.kill(process.pid, signal.SIGINT)

        assert said(process) == "SIGINT"
        assert process.wait(30) == 7


def test_a_signal_is_passed_on_after_all_were_sent_another_and_when_the_witness_is_no_more() -> None:
    with running(signals=3) as process:
        send_to_all(process, "SIGUSR1")
        assert said(process) == "SIGUSR1"
        os.kill(process.pid, signal.SIGUSR2)
        assert said(process) == "SIGUSR2"
        os.kill(witness_of(process.pid), signal.SIGKILL)
        os.kill(process.pid, signal.SIGTERM)

        assert said(process) == "SIGTERM"
        assert process.wait(30) == 7


def test_a_signal_from_before_there_is_a_command_is_passed_on_to_it() -> None:
    program = (
        "import os, signal, subprocess\n"
        "from slurm_interleave.client.cli.run_signals import passing_on\n"
        "with passing_on() as signals:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    command = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
        "    signals.pass_to(command.pid)\n"
        "    print(command.wait())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=90, check=True
    )

    assert int(done.stdout) == -signal.SIGTERM


@pytest.mark.parametrize("name", ["TERM", "QUIT"])
def test_a_signal_at_once_when_the_command_begins_does_not_end_run_without_it(name: str) -> None:
    done = subprocess.run(
        [PROGRAM, "run", "sh", "-c", f"kill -{name} $PPID; exec sleep 60"], timeout=90, check=False
    )

    assert done.returncode == 128 + getattr(signal, f"SIG{name}")


def test_a_command_without_a_handler_ends_by_the_signal_and_run_says_so() -> None:
    done = subprocess.run(
        ["timeout", "-s", "INT", "2", PROGRAM, "run", "sleep", "3600"], timeout=60, check=False
    )

    assert done.returncode == 124  # of timeout: the command was ended by it


def test_a_signal_that_was_ignored_before_is_not_passed_on() -> None:
    with running("nohup") as process:
        os.kill(process.pid, signal.SIGHUP)
        os.kill(process.pid, signal.SIGUSR1)
        assert said(process) == "SIGUSR1"


def test_nothing_is_left_when_run_is_killed() -> None:
    with running() as process:
        pids = set(tree(process.pid)) - {process.pid}
        assert len(pids) == 2  # the witness and the command
        ends = [os.pidfd_open(pid) for pid in pids]
        process.kill()
        try:
            for end in ends:
                assert select.select([end], [], [], 30)[0]
        finally:
            for end in ends:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(end, signal.SIGKILL)
                os.close(end)


def test_a_witness_ends_with_run_and_what_the_command_left_goes_on() -> None:
    leaves = "import subprocess; print(subprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL).pid)"
    done = subprocess.run(
        [PROGRAM, "run", sys.executable, "-c", leaves], stdout=subprocess.PIPE, timeout=60, check=True
    )

    os.kill(int(done.stdout), signal.SIGKILL)  # raises if it is no more
