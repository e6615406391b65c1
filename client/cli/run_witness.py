"""The witness of `interleave run`: a program by itself that tells each signal that it is sent.

It is begun with the signals of its arguments blocked, so that none can end it, and none is missed before it
is up. It writes a `REPORT` for each, and one of number 0 when it is up. From its input it reads the session
that is to end with `run`, and 0 when that has ended; where the input ends without, `run` was killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import sys
import threading
import time

# The signal's number and when it came, in seconds of CLOCK_MONOTONIC, which is one for all processes.
REPORT = struct.Struct("=id")


def _tell(number: int) -> None:
    os.write(1, REPORT.pack(number, time.monotonic()))


def _witness(numbers: set[int]) -> None:
    _tell(0)
    while True:
        _tell(signal.sigwait(numbers))


def _main() -> None:
    numbers = {int(argument) for argument in sys.argv[1:]}
    threading.Thread(target=_witness, args=(numbers,), daemon=True).start()
    session = 0
    for line in sys.stdin:
        session = int(line)
    if session:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(session, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    _main()
