"""The other end of `pyslurm_worker`: starts that process, asks it, and ends it when it is late."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import Any, cast

from slurm_interleave.client.core.errors import SlurmFailed

_MODULE = "slurm_interleave.orchestrator.placement.pyslurm_worker"
_LINE_MAX = 256 * 2**20  # of a queue of a hundred thousand jobs
_LAST_WORDS = 500


class Worker:
    """One process with pyslurm in it; after its end the next call starts another."""

    def __init__(self, timeout_s: float = 10.0) -> None:
        """*timeout_s*: how long each answer may take."""
        self._timeout_s = timeout_s
        self._one_at_a_time = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None
        self._last_words = b""
        self.version = ""
        """Of pyslurm, once it has been started."""

    async def start(self) -> None:
        """Start the process if there is none. Raises `SlurmFailed` with why pyslurm cannot be used."""
        async with self._one_at_a_time:
            await self._started()

    async def ask(self, call: str, *arguments: Any) -> Any:
        """Return the answer to one call of `pyslurm_worker.answer`. Raises `SlurmFailed`."""
        async with self._one_at_a_time:
            process = await self._started()
            stdin = cast("asyncio.StreamWriter", process.stdin)
            with contextlib.suppress(ConnectionError):
                stdin.write(json.dumps([call, *arguments]).encode() + b"\n")
                await stdin.drain()
            return await self._answer(process, f"pyslurm: {call} {' '.join(map(str, arguments[:1]))}".strip())

    async def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await process.wait()
        if self._listening is not None:
            await self._listening

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is not None:
            return self._process
        pipe = asyncio.subprocess.PIPE
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", _MODULE, stdin=pipe, stdout=pipe, stderr=pipe, limit=_LINE_MAX
        )
        self._last_words = b""
        self._listening = asyncio.create_task(self._listen(process))
        try:
            self.version = str(await self._answer(process, "import pyslurm"))
        except SlurmFailed:
            await self.close()
            raise
        return process

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        stderr = cast("asyncio.StreamReader", process.stderr)
        while chunk := await stderr.read(4096):
            self._last_words = (self._last_words + chunk)[-_LAST_WORDS:]

    async def _answer(self, process: asyncio.subprocess.Process, what: str) -> Any:
        stdout, line = cast("asyncio.StreamReader", process.stdout), b""
        try:
            line = await asyncio.wait_for(stdout.readline(), self._timeout_s)
        except asyncio.TimeoutError:
            raise SlurmFailed(f"{what}: no answer within {self._timeout_s:g} s; is slurmctld up?") from None
        finally:
            if not line:  # late, ended, or the call was cancelled: what comes now answers nobody
                await self.close()
        if not line:
            words = " ".join(self._last_words.decode(errors="replace").split())
            raise SlurmFailed(f"{what}: the process ended (exit code {process.returncode}): {words}")
        reply = json.loads(line)
        if "error" in reply:
            raise SlurmFailed(f"{what}: {reply['error']}")
        return reply["result"]
