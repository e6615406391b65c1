"""Which way to Slurm: pyslurm where it is there and fits, else Slurm's commands."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

from slurm_interleave.client.core.errors import ConfigError, SlurmFailed
from slurm_interleave.client.core.slurm_command import parse_release, run_slurm
from slurm_interleave.orchestrator.placement.admin_comment import parse_comment
from slurm_interleave.orchestrator.placement.ports import Slurm
from slurm_interleave.orchestrator.placement.pyslurm_gateway import Pyslurm
from slurm_interleave.orchestrator.placement.slurm import SlurmCommands
from slurm_interleave.orchestrator.placement.squeue import SlurmJob
from slurm_interleave.orchestrator.placement.worker import Worker

COMMANDS, PYSLURM = "commands", "pyslurm"


@dataclass(frozen=True)
class Gateway:
    """The way that was chosen."""

    name: str
    why: str
    slurm: Slurm
    worker: Worker | None = None

    async def close(self) -> None:
        """End the process that it has, if it has one."""
        if self.worker is not None:
            await self.worker.close()


async def choose(wanted: str, timeout_s: float = 10.0) -> Gateway:
    """Return what [placement] gateway wants. Raises `ConfigError` if that is pyslurm and cannot be."""
    commands = SlurmCommands(timeout_s)
    if wanted == COMMANDS:
        return Gateway(COMMANDS, "as configured", commands)
    worker = Worker(timeout_s)
    try:
        why = await _fits(worker, timeout_s)
    except SlurmFailed as error:
        await worker.close()
        if wanted == PYSLURM:
            raise ConfigError(f'[placement] gateway = "pyslurm": {error}; or set it to "auto"') from error
        return Gateway(COMMANDS, str(error), commands)
    return Gateway(PYSLURM, why, Pyslurm(worker, commands), worker)


async def _fits(worker: Worker, timeout_s: float) -> str:
    """Return why pyslurm can be used. Raises `SlurmFailed` if it cannot."""
    if importlib.util.find_spec("pyslurm") is None:
        raise SlurmFailed("pyslurm is not installed")
    await worker.start()
    try:
        slurm = parse_release(await run_slurm(["sinfo", "--version"], timeout_s))
    except OSError as error:
        raise SlurmFailed(f"sinfo --version: cannot be run: {error}") from error
    made_for = parse_release(worker.version)
    if made_for != slurm:
        raise SlurmFailed(f"pyslurm {worker.version} is for another Slurm than {slurm[0]}.{slurm[1]:02}")
    return f"pyslurm {worker.version} fits this Slurm"


def by_group(jobs: list[SlurmJob]) -> dict[str, list[SlurmJob]]:
    """Return the interleaved jobs that are not over, by group. Raises `BadName` for a note that is none."""
    found: dict[str, list[SlurmJob]] = {}
    for job in jobs:
        comment = parse_comment(job.admin_comment)
        if comment and not job.finished:
            found.setdefault(comment.group, []).append(job)
    return found
