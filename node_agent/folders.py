"""The folder of each job under run_dir: its environment file, and its socket with the server behind it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import grpc

from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.node_agent import sockets, whole_file
from slurm_interleave.node_agent.config import AgentConfig
from slurm_interleave.node_agent.state import Job


class JobFolders:
    """Opens and closes what a job finds on its node."""

    def __init__(
        self,
        config: AgentConfig,
        variables: Callable[[Job], str],
        serve: Callable[[Job, Path], Awaitable[grpc.aio.Server]],
    ) -> None:
        """*variables* gives the text of the environment file, *serve* a running server in the folder."""
        self._config = config
        self._variables = variables
        self._serve = serve
        self._servers: dict[str, grpc.aio.Server] = {}

    def environment(self, job: Job) -> Path:
        """Return the path of the job's environment file."""
        return self._config.job_folder(job.job_id) / "environment"

    async def open(self, job: Job) -> None:
        """Make the folder and serve the socket; again is fine. Raises `ConfigError`."""
        folder = self._config.job_folder(job.job_id)
        try:
            _make_way(folder)
            whole_file.write(self.environment(job), None, self._variables(job))
        except OSError as error:
            raise ConfigError(f"[agent] run_dir: {folder} cannot be written: {error}") from error
        if job.job_id not in self._servers:
            self._servers[job.job_id] = await self._serve(job, folder)

    async def close(self, job_id: str) -> None:
        """Stop serving and remove the folder; again is fine."""
        # First, since the SPANK plugin must not find the variables of a job that is over.
        self._environment_gone(job_id)
        server = self._servers.pop(job_id, None)
        if server is not None:
            await sockets.stop(server)
        shutil.rmtree(self._config.job_folder(job_id), ignore_errors=True)

    async def close_all(self) -> None:
        """Stop serving; the folders stay for the next agent."""
        for server in self._servers.values():
            await sockets.stop(server)
        self._servers.clear()

    def remove_strangers(self, known: Iterable[str]) -> None:
        """Remove the folders of jobs that are not *known*, left by an agent that was killed."""
        folder = self._config.job_folder("x").parent
        kept = set(known)
        for path in folder.iterdir() if folder.exists() else ():
            if path.name not in kept:
                shutil.rmtree(path, ignore_errors=True)

    def _environment_gone(self, job_id: str) -> None:
        with contextlib.suppress(OSError):
            (self._config.job_folder(job_id) / "environment").unlink()


def _make_way(folder: Path) -> None:
    """Make *folder* for the agent alone, and what is missing above it for users to pass through."""
    missing = [parent for parent in folder.parents if not parent.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for parent in missing:
        parent.chmod(0o711 if parent == folder.parent else 0o755)
