"""The agent as a process of its own, that can be killed."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

PROGRAM = Path(sys.executable).with_name("interleave-agent")


class AgentProcess:
    """`interleave-agent`, started with a file of settings."""

    def __init__(self, folder: Path, address: str, before: Sequence[str] = ()) -> None:
        """*before*: what its command begins with."""
        self._file = folder / "interleave.toml"
        self._folder = folder
        self._address = address
        self._before = before
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, gib_s: float = 0.0, backend: str = "sim", more: str = "") -> None:
        self._file.write_text(
            f'[agent]\norchestrator = "{self._address}"\nrun_dir = "{self._folder}/run"\nauth = "none"\n'
            f'state_dir = "{self._folder}/state"\nbackend = "{backend}"\n{more}'
            f'[sim]\ndirectory = "{self._folder}/sim"\nmemory_mib = 8\n'
            f"snapshot_gib_s = {gib_s}\nrestore_gib_s = {gib_s}\n"
        )
        self._process = await asyncio.create_subprocess_exec(
            *self._before,
            "prlimit",
            "--nofile=1024:4096",
            PROGRAM,
            "--config",
            self._file,
            "--node",
            "n1",
            stderr=asyncio.subprocess.PIPE,
        )
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            if b"event=ready" in line:
                return
        raise AssertionError("the agent ended before it was ready")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def stop(self, how: signal.Signals) -> int:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(how)
        await self._process.communicate()
        return self._process.returncode or 0
