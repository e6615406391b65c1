"""NVIDIA's `cuda-checkpoint` program, for drivers 555 to 569 that have no functions for it.

Only helpers run it. Each run attaches to the driver anew, which costs seconds.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

_STATES = ("running", "locked", "checkpointed", "failed")
# What the program says is the driver's text for the code.
_CODES = {
    "out of memory": 2,
    "initialization error": 3,
    "operation not supported on this os": 304,
    "present state": 401,
    "not ready": 600,
    "not permitted": 800,
    "not supported": 801,
}
_OTHER = 999


class Tool:
    """The calls of `Driver` by the program."""

    def __init__(self, program: str) -> None:
        self._program = program

    def state(self, pid: int) -> tuple[int, int]:
        """Return the state of a process."""
        code, text = self._run(pid, "--get-state")
        if code != 0:
            return code, 0
        return (0, _STATES.index(text.lower())) if text.lower() in _STATES else (_OTHER, 0)

    def thread(self, pid: int) -> tuple[int, int]:
        """Return the thread that restores a process."""
        code, text = self._run(pid, "--get-restore-tid")
        return code, int(text) if code == 0 and text.isdigit() else 0

    def lock(self, pid: int, timeout_ms: int) -> tuple[int, int]:
        """Make the process's calls wait."""
        return self._run(pid, "--action", "lock", "--timeout", str(timeout_ms))[0], 0

    def checkpoint(self, pid: int) -> tuple[int, int]:
        """Copy device memory to host memory, and free it."""
        return self._run(pid, "--action", "checkpoint")[0], 0

    def restore(self, pid: int, pairs: Sequence[Sequence[str]] = ()) -> tuple[int, int]:
        """Bring it back, to the same devices alone."""
        if pairs:
            return _CODES["not supported"], 0
        return self._run(pid, "--action", "restore")[0], 0

    def unlock(self, pid: int) -> tuple[int, int]:
        """Let the process's calls go on."""
        return self._run(pid, "--action", "unlock")[0], 0

    def _run(self, pid: int, *words: str) -> tuple[int, str]:
        return run([self._program, *words, "--pid", str(pid)])


def run(argv: Sequence[str]) -> tuple[int, str]:
    """Run the program; return the driver's code, by its text, and what was said."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except OSError as error:
        return _OTHER, str(error)
    if done.returncode == 0:
        return 0, done.stdout.strip()
    said = (done.stderr + done.stdout).lower()
    return next((code for text, code in _CODES.items() if text in said), _OTHER), said
