"""Slurm through pyslurm, where that says it; through Slurm's commands where it does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slurm_interleave.orchestrator.placement.reservations import Reservation
from slurm_interleave.orchestrator.placement.slurm import SlurmCommands
from slurm_interleave.orchestrator.placement.squeue import SlurmJob
from slurm_interleave.orchestrator.placement.worker import Worker


class Pyslurm:
    """As `ports.Slurm`.

    pyslurm 25.11 changes jobs by number alone, so a task of an array and the first component of a
    heterogeneous job are left to the commands. So are an empty list of nodes, which it leaves out of the
    request, and the GRES in use, which it has by accounting's TRES and not by type.
    """

    def __init__(self, worker: Worker, commands: SlurmCommands) -> None:
        self._worker, self._commands = worker, commands

    async def jobs(self) -> list[SlurmJob]:
        """Return all jobs that slurmctld knows."""
        return [_job(raw) for raw in await self._worker.ask("jobs")]

    async def job(self, job_id: str) -> SlurmJob:
        """Return one job, or the record of an array."""
        if not job_id.isdecimal():
            return await self._commands.job(job_id)
        return _job(await self._worker.ask("job", int(job_id)))

    async def pin(self, name: str, nodes: tuple[str, ...], gres: str, admin_comment: str) -> None:
        """Give a pending job its nodes and its GRES and note that."""
        if not name.isdecimal():
            await self._commands.pin(name, nodes, gres, admin_comment)
            return
        change = {"required_nodes": list(nodes), "gres_per_node": gres, "admin_comment": admin_comment}
        await self._worker.ask("update", int(name), change)

    async def note(self, name: str, admin_comment: str) -> None:
        """Write the job's admin comment."""
        if not name.isdecimal():
            await self._commands.note(name, admin_comment)
            return
        await self._worker.ask("update", int(name), {"admin_comment": admin_comment})

    async def unpin(self, name: str) -> None:
        """Take back which nodes a pending job must have."""
        await self._commands.unpin(name)

    async def node_states(self) -> dict[str, str]:
        """Return the state of each node in small letters, as sinfo writes it: `idle`, `down*`."""
        found: Mapping[str, str] = await self._worker.ask("nodes")
        return {name: state.lower() for name, state in found.items()}

    async def reservations(self) -> list[Reservation]:
        """Return Slurm's reservations."""
        found = await self._worker.ask("reservations")
        return [Reservation(raw["name"], tuple(raw["nodes"]), raw["active"]) for raw in found]

    async def used(self) -> dict[tuple[str, str], int]:
        """Return how much of each typed GRES, as in `ilva:g0`, is in use on each node."""
        return await self._commands.used()

    async def release(self, name: str) -> None:
        """Let a held job start."""
        await self._change("release", name)

    async def requeue(self, name: str) -> None:
        """End a running job and put it back into the queue."""
        await self._change("requeue", name)

    async def hold(self, name: str) -> None:
        """Keep a pending job from starting."""
        await self._change("hold", name)

    async def _change(self, verb: str, name: str) -> None:
        if name.isdecimal():
            await self._worker.ask(verb, int(name))
        else:
            await getattr(self._commands, verb)(name)


def _job(raw: dict[str, Any]) -> SlurmJob:
    sets, rows = ("states", "gres"), ("nodes", "excluded", "pinned")
    return SlurmJob(
        **{
            **raw,
            **{key: frozenset(raw[key]) for key in sets},
            **{key: tuple(raw[key]) for key in rows},
        }
    )
