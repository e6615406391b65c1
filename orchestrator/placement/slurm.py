"""Slurm through its own commands: argument lists, no shell, each with a deadline."""

from __future__ import annotations

from slurm_interleave.client.core.errors import SlurmFailed
from slurm_interleave.client.core.slurm_command import run_slurm
from slurm_interleave.orchestrator.placement.squeue import SlurmJob, parse_squeue


class SlurmCommands:
    """Runs `squeue` and `scontrol`, which find the cluster by SLURM_CONF as usual."""

    def __init__(self, timeout_s: float = 10.0) -> None:
        self._timeout_s = timeout_s

    async def jobs(self) -> list[SlurmJob]:
        """Return all jobs that slurmctld knows."""
        return parse_squeue(await self._run("squeue", "--json"))

    async def pin(self, job_id: str, nodes: tuple[str, ...], gres: str, admin_comment: str) -> None:
        """Give a pending job its nodes and its GRES and note that."""
        await self._run(
            "scontrol",
            "update",
            f"JobId={job_id}",
            f"ReqNodeList={','.join(nodes)}",
            f"Gres={gres}",
            f"AdminComment={admin_comment}",
        )

    async def note(self, job_id: str, admin_comment: str) -> None:
        """Write the job's admin comment."""
        await self._run("scontrol", "update", f"JobId={job_id}", f"AdminComment={admin_comment}")

    async def unpin(self, job_id: str) -> None:
        """Take back which nodes a pending job must have."""
        await self._run("scontrol", "update", f"JobId={job_id}", "ReqNodeList=")

    async def down_nodes(self) -> frozenset[str]:
        """Return the names of the nodes that are down."""
        text = await self._run("sinfo", "--all", "--noheader", "--Node", "--format=%N %T")
        rows = [line.split() for line in text.splitlines()]
        return frozenset(row[0] for row in rows if len(row) == 2 and row[1].startswith("down"))

    async def release(self, job_id: str) -> None:
        """Let a held job start."""
        await self._run("scontrol", "release", job_id)

    async def requeue(self, job_id: str) -> None:
        """End a running job and put it back into the queue."""
        await self._run("scontrol", "requeue", job_id)

    async def hold(self, job_id: str) -> None:
        """Keep a pending job from starting."""
        await self._run("scontrol", "hold", job_id)

    async def _run(self, *argv: str) -> str:
        try:
            return await run_slurm(argv, self._timeout_s)
        except OSError as error:
            raise SlurmFailed(f"{' '.join(argv[:3])}: cannot be run: {error}") from error
