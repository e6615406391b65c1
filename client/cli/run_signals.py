"""Signals that `interleave run` alone was sent, passed on to its command.

A terminal, `kill` and `timeout` send to `run` alone, or to its process group, and the command is in a session
of its own. Slurm and systemd send to all processes there are, and the command must not get it twice. Which
it was no sender says, so there is a witness: a process in yet another session, that tells what it was sent.
The same signal sent to all and to `run` alone within half a second is one, as the kernel too merges those
that wait.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue

from slurm_interleave.client.cli import run_witness

_PASSED_ON = (
    signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip
# So long before or after `run` the witness may get the signal that all were sent.
_HEARD_S = 0.5
_UP_S = 10.0


class Signals:
    """What comes to this process, for one session."""

    def __init__(self, taken: list[signal.Signals]) -> None:
        self._came: SimpleQueue[tuple[int, float]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        # A handler waits for the main thread, which sleeps on where the kernel gives the signal to another.
        self._before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in taken:
            signal.signal(number, lambda _number, _frame: None)
        threading.Thread(target=self._note, args=(read,), name="interleave-noting", daemon=True).start()
        self._witness = _Witness(taken)

    def pass_to(self, session: int) -> None:
        """Pass on to *session*, which has just begun, what came before too.

        It is killed when this process is.
        """
        self._witness.guard(session)
        self._thread = threading.Thread(
            target=self._pass_on, args=(session, time.monotonic()), name="interleave-signals", daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        """Pass on no more."""
        signal.set_wakeup_fd(self._before)
        os.close(self._write)
        if self._thread is not None:
            self._thread.join()
        self._witness.end()

    def _note(self, read: int) -> None:
        while number := os.read(read, 1):
            self._came.put((number[0], time.monotonic()))
        self._came.put((0, 0.0))
        os.close(read)

    def _pass_on(self, session: int, began: float) -> None:
        while (came := self._came.get())[0]:
            number, at = came
            # What all were sent before there was a command, the command was not.
            if at < began or not self._witness.got(number, at):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(session, number)


@contextlib.contextmanager
def passing_on() -> Iterator[Signals]:
    """Take the signals that come during the body of a `with`, to pass them on; ignore them after that.

    What this process ignored before, as by nohup, it goes on to ignore. For the main thread.
    """
    taken = [number for number in _PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]
    signals = Signals(taken)
    try:
        yield signals
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_IGN)
        signals.end()


class _Witness:
    """A process that is sent what all are sent. Where there can be none, nothing is told."""

    def __init__(self, taken: list[signal.Signals]) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._told: list[tuple[int, float]] = []
        self._up_at: float | None = None
        program = [sys.executable, "-I", "-S", run_witness.__file__]
        before = signal.pthread_sigmask(signal.SIG_BLOCK, taken)
        try:
            self._process = subprocess.Popen(
                [*program, *(str(int(number)) for number in taken)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                bufsize=0, cwd="/", start_new_session=True,
            )  # fmt: skip
        except OSError:
            pass
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def guard(self, session: int) -> None:
        """Have *session* killed if this process ends before `end`; 0 for none."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.write(b"%d\n" % session)

    def got(self, number: int, at: float) -> bool:
        """Tell whether it was sent signal *number* too, about when this process was, *at*."""
        if self._up_at is None:
            self._hear(time.monotonic() + _UP_S)
            self._up_at = time.monotonic()
        until = max(at, self._up_at) + _HEARD_S
        while not self._was_told(number, at - _HEARD_S, until):
            if not self._hear(until):
                return False
        return True

    def _was_told(self, number: int, since: float, until: float) -> bool:
        self._told = [told for told in self._told if told[1] >= since]  # what comes next came later
        return any(told == number and when <= until for told, when in self._told)

    def _hear(self, until: float) -> bool:
        """Wait for what it tells next; False if it tells nothing, or is no more."""
        if self._process is None or self._process.stdout is None:
            return False
        told = self._process.stdout.fileno()
        if not select.select([told], [], [], max(0.0, until - time.monotonic()))[0]:
            return False
        report = os.read(told, run_witness.REPORT.size)
        if report:
            self._told.append(run_witness.REPORT.unpack(report))
        return bool(report)

    def end(self) -> None:
        """End it."""
        self.guard(0)
        if self._process is not None:
            self._process.communicate()  # closes its input
