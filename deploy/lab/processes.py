"""Daemons as child processes: start, wait until ready, end, kill; and the sweep that leaves nothing."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

MARKER = "INTERLEAVE_LAB"
POLL_S = 0.02
TAIL_LINES = 15
_SIGTERM_EVERY_S = 1.0
_PORTS = range(20000, 32000, 400)


class LabError(Exception):
    """The lab could not do what was asked; the text says why, with the end of the log that shows it."""


def tail(path: Path, lines: int = TAIL_LINES) -> str:
    """Return the last *lines* lines of *path*, or empty text where there is no such file."""
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return ""


def wait_until(done: Callable[[], bool], timeout_s: float, poll_s: float = POLL_S) -> bool:
    """Return True as soon as *done* does, False after *timeout_s* seconds."""
    deadline = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() >= deadline:
            return False
        time.sleep(poll_s)
    return True


class Daemon:
    """One daemon of the lab; its output goes to *log*, beside which it may write *own_logs*."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        log: Path,
        env: Mapping[str, str],
        ready: Callable[[], bool],
        own_logs: Sequence[Path] = (),
    ) -> None:
        self.name, self.argv, self.log = name, list(argv), log
        self._env, self._ready, self._own_logs = dict(env), ready, list(own_logs)
        self.process: subprocess.Popen[bytes] | None = None
        self.log_start = 0

    @property
    def running(self) -> bool:
        """True while the process lives."""
        return self.process is not None and self.process.poll() is None

    def spawn(self) -> None:
        """Start the process; does not wait until it serves."""
        if self.running:
            raise LabError(f"{self.name} runs already, as process {self.process and self.process.pid}")
        with self.log.open("ab") as out:
            self.log_start = out.tell()
            self.process = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=self._env,
                start_new_session=True,  # Ctrl-C at the terminal is for the lab, which ends them in order
            )

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Return once the daemon serves. Raises `LabError` with the end of its log if it ends or is late."""
        wait_until(lambda: self._ready() or not self.running, timeout_s)
        if not self.running:
            code = self.process.returncode if self.process else None
            raise LabError(f"{self.name} ended with exit code {code} as it started\n{self.logs()}")
        if not self._ready():
            raise LabError(f"{self.name} did not serve within {timeout_s:g} s\n{self.logs()}")

    def said(self, text: str) -> bool:
        """True if the present process wrote *text* to its log."""
        try:
            with self.log.open("rb") as file:
                file.seek(self.log_start)
                return text.encode() in file.read()
        except FileNotFoundError:
            return False

    def terminate(self) -> None:
        """Send SIGTERM; does not wait."""
        if self.process is not None and self.running:
            self.process.terminate()

    def stop(self, timeout_s: float = 60.0) -> None:
        """End it with SIGTERM, after *timeout_s* with SIGKILL. Nothing happens where it does not run."""
        if self.process is None or not self.running:
            return
        if not wait_until(self._ended_by_another_sigterm, timeout_s, poll_s=0):
            self.kill9()

    def _ended_by_another_sigterm(self) -> bool:
        """A Slurm from 24.11 on that is reading its configuration anew loses the signal."""
        self.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self.process is not None:
                self.process.wait(_SIGTERM_EVERY_S)
        return not self.running

    def kill9(self) -> None:
        """End it with SIGKILL, as a crash would."""
        if self.process is not None and self.running:
            self.process.kill()
            self.process.wait()

    def logs(self, lines: int = TAIL_LINES) -> str:
        """Return the end of its log file, or of its output where that has nothing."""
        parts = ((path, tail(path, lines)) for path in (*self._own_logs, self.log))
        return next((f"--- {path.name}\n{text}" for path, text in parts if text), "")


def free_ports(count: int) -> list[int]:
    """Return *count* TCP ports that nothing listens on, below the range that outgoing connections use.

    No other process is given one of them by this function while the caller lives.
    """
    chosen: list[int] = []
    with contextlib.ExitStack() as held:
        _, mine = _own_ports()
        for port in random.sample(mine, len(mine)):
            probe = held.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            chosen.append(port)
            if len(chosen) == count:
                return chosen
    raise LabError(f"no {count} free TCP ports between {mine.start} and {mine.stop}")


@functools.cache
def _own_ports() -> tuple[socket.socket, range]:
    """Return the ports of this process, and the name in the kernel that keeps others from them (unix(7))."""
    for start in random.sample(_PORTS, len(_PORTS)):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0interleave-lab-ports-{start}")
        except OSError:
            claim.close()
        else:
            atexit.register(claim.close)
            return claim, range(start, start + _PORTS.step)
    raise LabError(f"{len(_PORTS)} processes of this machine have labs; no more can have ports")


def sweep(root: Path, timeout_s: float = 30.0) -> list[int]:
    """Kill what the lab under *root* started and what came of it; return what is left after *timeout_s*."""
    wait_until(lambda: not _kill(belongings(root)), timeout_s, poll_s=0.05)
    return sorted(belongings(root))


def _kill(pids: set[int]) -> set[int]:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return pids


def belongings(root: Path) -> set[int]:
    """Return the living processes that carry the lab's mark in their environment, and their children.

    Slurm gives a job a new session and, with --export=NONE, a new environment; but slurmstepd, its parent,
    has slurmd's environment.
    """
    marks = {f"{MARKER}={root}".encode(), f"SLURM_CONF={root}/etc/slurm.conf".encode()}
    parents = _parents()
    found = {pid for pid in parents if marks & _environ(pid)}
    while True:
        children = {pid for pid, parent in parents.items() if parent in found} - found
        if not children:
            return found - {os.getpid()}
        found |= children


def _parents() -> dict[int, int]:
    """Return the parent of each process that lives (zombies do not)."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                if state != "Z":
                    parents[int(entry.name)] = int(parent)
    return parents


def _environ(pid: int) -> set[bytes]:
    try:
        return set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return set()
