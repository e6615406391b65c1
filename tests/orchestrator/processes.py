"""`interleaved` as a real process, to be killed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

LIMIT_S = 60.0


class Daemon:
    """One `interleaved` with its files in *folder*; it may be started again and again on the same port."""

    def __init__(self, folder: Path, *, before: Sequence[str] = (), more: str = "", **keys: str) -> None:
        """*before*: what its command begins with; *more*: other sections of its configuration."""
        self.folder, self.log, self.port = folder, folder / "interleaved.log", 0
        self.keys = {"auth": "none", "database": f"sqlite:///{folder}/orchestrator.db", **keys}
        self.before, self.more = before, more
        self.process: subprocess.Popen[bytes] | None = None
        self._read = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it; return when it is ready."""
        keys = {"listen": self.address, "socket": str(self.folder / "interleaved.sock"), **self.keys}
        config = self.folder / "interleave.toml"
        lines = [f'{key} = "{value}"' for key, value in keys.items()]
        config.write_text(
            "\n".join(["[orchestrator]", *lines, "[placement]", "enabled = false", self.more, ""])
        )
        argv = [*self.before, sys.executable, "-m", "slurm_interleave.orchestrator", f"--config={config}"]
        with self.log.open("ab") as out:
            self._read = out.tell()
            environ = {key: value for key, value in os.environ.items() if "INTERLEAVE" not in key}
            self.process = subprocess.Popen(argv, stderr=out, env=environ)
        self.port = int(self.says(r"event=ready port=(\d+)"))

    def says(self, pattern: str) -> str:
        """Wait until its log since the last start has *pattern*; return the first group."""
        limit = time.monotonic() + LIMIT_S
        while not (found := re.search(pattern, self.text())):
            assert self.process is None or self.process.poll() is None, self.text()
            assert time.monotonic() < limit, self.text()
            time.sleep(0.01)
        return found[1] if found.groups() else found[0]

    def text(self) -> str:
        """Return what it has logged since its last start."""
        with self.log.open("rb") as log:
            log.seek(self._read)
            return log.read().decode()

    def end(self, number: signal.Signals) -> int:
        """Send a signal and wait for the end."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(LIMIT_S)


@contextlib.contextmanager
def daemon(folder: Path, *, before: Sequence[str] = (), **keys: str) -> Iterator[Daemon]:
    """A running `interleaved`."""
    running = Daemon(folder, before=before, **keys)
    running.start()
    try:
        yield running
    finally:
        if running.process is not None and running.process.poll() is None:
            running.end(signal.SIGKILL)
