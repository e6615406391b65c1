"""The processes under test: started in a scratch folder, with real sockets and a real database."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

_START_S = 60.0
_READY = re.compile(r"event=ready (?:.*? )?port=(\d+)")
_TICKS = os.sysconf("SC_CLK_TCK")


class Broken(Exception):
    """A process did not do what the benchmark needs."""


@dataclass
class Server:
    """A process that serves on *port*; its log is a file."""

    process: subprocess.Popen[bytes]
    log: Path
    port: int = 0

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    async def ready(self) -> None:
        """Wait until it says that it serves. Raises `Broken`."""
        until = time.monotonic() + _START_S
        while time.monotonic() < until and self.process.poll() is None:
            found = _READY.search(self.log.read_text())
            if found:
                self.port = int(found[1])
                return
            await asyncio.sleep(0.02)
        raise Broken(f"{self.log.stem} did not start:\n{self.log.read_text()[-2000:]}")

    def cpu_s(self) -> float:
        """Return the processor time that it has used, in seconds."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def rss_mib(self) -> float:
        """Return its resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def kill(self) -> None:
        """End it as a crash does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Listens(Protocol):
    """Whatever agents connect to."""

    @property
    def address(self) -> str:
        """Where it listens."""


class Stand:
    """All processes of a run; they end with it."""

    def __init__(self, folder: Path, database: Callable[[str], str]) -> None:
        """*database* gives the URL for an orchestrator's name."""
        self._folder = folder
        self.database = functools.cache(database)
        self._servers: list[Server] = []

    def close(self) -> None:
        """Stop everything."""
        for server in self._servers:
            if server.process.poll() is None:
                server.process.terminate()
        for server in self._servers:
            server.process.wait(timeout=20)

    async def empty_server(self) -> Server:
        """Start the server that does nothing."""
        return await self._start("empty", [sys.executable, str(Path(__file__).with_name("empty_server.py"))])

    async def orchestrator(self, name: str, port: int = 0, turns: str = "") -> Server:
        """Start `interleaved` on its own database; *name* again is the same database.

        *turns*: lines of that section of its configuration.
        """
        config = self._folder / f"{name}.toml"
        config.write_text(
            f"[orchestrator]\n"
            f'listen = "127.0.0.1:{port}"\n'
            f'database = "{self.database(name)}"\n'
            f'socket = "{self._folder}/{name}.sock"\n'
            f'auth = "none"\n'
            f"[turns]\n{turns}\n"
        )
        program = [sys.executable, "-m", "slurm_interleave.orchestrator"]
        return await self._start(name, [*program, "--config", str(config)])

    def folder(self, node: str) -> Path:
        """Return where the agent of *node* has its files."""
        return self._folder / f"agent-{node}"

    async def agent(
        self,
        orchestrator: Listens,
        jobs: Sequence[str] = ("1", "2"),
        backend: str = "noop",
        node: str = "n0",
        sim: str = "",
    ) -> tuple[Server, dict[str, str]]:
        """Start `interleave-agent` for one device and jobs that share it; return it and their tokens.

        *sim*: more lines of its section [sim].
        """
        folder = self.folder(node)
        folder.mkdir()
        config = folder / "agent.toml"
        config.write_text(
            f"[agent]\n"
            f'orchestrator = "{orchestrator.address}"\n'
            f'run_dir = "{folder}/run"\n'
            f'state_dir = "{folder}/state"\n'
            f'backend = "{backend}"\n'
            f'auth = "none"\n'
            f'[sim]\ndirectory = "{folder}/sim"\n{sim}'
        )
        program = [sys.executable, "-m", "slurm_interleave.node_agent.daemon"]
        server = await self._start(folder.name, [*program, "--config", str(config), "--node", node])
        return server, {job: await _start_job(folder / "run" / "agent.sock", job) for job in jobs}

    async def _start(self, name: str, command: list[str]) -> Server:
        log = self._folder / f"{name}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out)
        server = Server(process, log)
        self._servers.append(server)
        await server.ready()
        return server


async def _start_job(path: Path, job: str) -> str:
    """Do what the prolog does; return the job's token."""
    request = {"verb": "job-start", "job": job, "uid": os.getuid(), "gid": os.getgid(), "user": "bench"}
    request |= {"account": "", "partition": "", "group": "pair", "role": "", "devices": [0]}
    reply = await asyncio.to_thread(_ask, path, request)
    if not reply.get("ok"):
        raise Broken(f"the agent refused job {job}: {reply.get('error')}")
    environment = Path(reply["environment"]).read_text()
    return environment.partition("INTERLEAVE_TOKEN=")[2].splitlines()[0]


def _ask(path: Path, request: dict[str, object]) -> dict[str, str]:
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(path))
        line.sendall(json.dumps(request).encode() + b"\n")
        reply: dict[str, str] = json.loads(line.makefile().readline())
    return reply
