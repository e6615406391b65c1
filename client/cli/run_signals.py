"""Signals that `interleave run` alone was sent, passed on to its command.

A terminal, `kill` and `timeout` send to `run` alone, or to its process group, and the command is in a session
of its own. Slurm and systemd send to all processes there are, and the command must not get it twice. Which
it was no sender says, so there is a witness: a process in yet another session, that ends by the first signal
that it gets.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from queue import SimpleQueue

_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
# So long after `run` the witness may get the signal that all were sent.
_HEARD_S = 0.5


@contextlib.contextmanager
def passing_on(session: int) -> Iterator[None]:
    """Pass on what comes during the body of a `with` to *session*; ignore it after that.

    What this process ignored before, as by nohup, it goes on to ignore. For the main thread.
    """
    came: SimpleQueue[int | None] = SimpleQueue()
    taken = [number for number in _PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]
    for number in taken:
        signal.signal(number, lambda number, _frame: came.put(number))
    thread = threading.Thread(target=_pass_on, args=(came, session), name="interleave-signals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_IGN)
        came.put(None)
        thread.join()


def _pass_on(came: SimpleQueue[int | None], session: int) -> None:
    witness = _Witness()
    while (number := came.get()) is not None:
        if not witness.got(number):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(session, number)
    witness.end()


class _Witness:
    """A process that waits for a signal; it ends with this one. Where there can be none, nothing is told."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._begin()

    def got(self, number: int) -> bool:
        """Tell whether it was sent signal *number* too."""
        if self._process is None:
            return False
        try:
            code = self._process.wait(_HEARD_S)
        except subprocess.TimeoutExpired:
            return False
        self.end()
        self._begin()
        return code == -number

    def end(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.communicate()  # closes its input

    def _begin(self) -> None:
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", "read -r _"],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                cwd="/", env={}, start_new_session=True,
            )  # fmt: skip
