"""A command under `interleave run` gets each signal once, whoever was sent it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from lab.processes import wait_until

PROGRAM = Path(sys.executable).with_name("interleave")
# Says each signal that it gets, and ends by the second.
COMMAND = """
import signal
numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2]
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
print("ready", flush=True)
for _ in range(2):
    print(signal.sigwait(numbers).name, flush=True)
raise SystemExit(7)
"""


@contextmanager
def running(*argv: str) -> Iterator[subprocess.Popen[str]]:
    command = [*argv, str(PROGRAM), "run", sys.executable, "-c", COMMAND]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert said(process) == "ready"
            assert wait_until(lambda: len(witnesses(process.pid)) == 1, 30)
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


def witnesses(pid: int) -> list[int]:
    return [one for one in tree(pid) if b"read -r" in Path(f"/proc/{one}/cmdline").read_bytes()]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2"])
def test_what_run_alone_is_sent_its_command_gets_once(name: str) -> None:
    with running() as process:
        os.killpg(process.pid, getattr(signal, name))  # as a terminal does
        assert said(process) == name
        os.kill(process.pid, signal.SIGTERM)

        assert said(process) == "SIGTERM"
        assert process.wait(30) == 7


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
def test_what_all_processes_are_sent_its_command_gets_once(name: str) -> None:
    with running() as process:
        for pid in tree(process.pid):
            os.kill(pid, getattr(signal, name))
        assert said(process) == name
        os.kill(process.pid, signal.SIGINT)  # which would come behind the same again

        assert said(process) == "SIGINT"
        assert process.wait(30) == 7


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


def test_nothing_of_ours_is_left_when_run_is_killed() -> None:
    with running() as process:
        [witness] = witnesses(process.pid)
        [command] = set(tree(process.pid)) - {witness, process.pid}
        end = os.pidfd_open(witness)
        process.kill()
        try:
            assert select.select([end], [], [], 30)[0]
        finally:
            os.close(end)
            os.kill(command, signal.SIGKILL)
