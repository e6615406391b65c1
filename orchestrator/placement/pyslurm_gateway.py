"""Slurm through pyslurm, where that says it; through Slurm's commands where it does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slurm_interleave.client.core.errors import SlurmFailed
from slurm_interleave.orchestrator.placement.ports import Update
from slurm_interleave.orchestrator.placement.reservations import Reservation
from slurm_interleave.orchestrator.placement.slurm import SlurmCommands
from slurm_interleave.orchestrator.placement.squeue import SlurmJob
from slurm_interleave.orchestrator.placement.traits import Traits
from slurm_interleave.orchestrator.placement.worker import Worker


class Pyslurm:
    """As `ports.Slurm`.

    pyslurm 25.11 changes jobs by number alone, so a task of an array and the first component of a
    heterogeneous job are left to the commands. So are an empty list of nodes, which it leaves out of the
    request, a number of nodes, and the GRES in use, which it has by accounting's TRES and not by type; and
    the question after one job, which it asks without SHOW_ALL.
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

    async def runs(self, job_id: str) -> bool:
        """Tell whether a job has nodes, asked for alone; False only if slurmctld says that it has none."""
        return await self._commands.runs(job_id)

    async def update(self, updates: Sequence[Update]) -> dict[str, SlurmFailed]:
        """Change jobs, each once; return, by name, why that failed. Raises nothing."""
        failed: dict[str, SlurmFailed] = {}
        for one in updates:
            if one.name.isdecimal() and not one.count:
                failed |= await self._each("update", one.name, _change(one))
            else:
                failed |= await self._commands.update([one])
        return failed

    async def unpin(self, name: str) -> None:
        """Take back which nodes a pending job must have."""
        await self._commands.unpin(name)

    async def node_states(self) -> dict[str, str]:
        """Return the state of each node in small letters, as sinfo writes it: `idle`, `down*`."""
        found: Mapping[str, str] = await self._worker.ask("nodes")
        return {name: state.lower() for name, state in found.items()}

    async def traits(self) -> dict[str, Traits]:
        """Return what each node has."""
        return await self._commands.traits()

    async def reservations(self) -> list[Reservation]:
        """Return Slurm's reservations."""
        found = await self._worker.ask("reservations")
        return [Reservation(raw["name"], tuple(raw["nodes"]), raw["active"]) for raw in found]

    async def used(self) -> dict[tuple[str, str], int]:
        """Return how much of each typed GRES, as in `ilva:g0`, is in use on each node."""
        return await self._commands.used()

    async def release(self, names: Sequence[str]) -> dict[str, SlurmFailed]:
        """Let held jobs start, in this order; return, by name, why that failed. Raises nothing."""
        failed: dict[str, SlurmFailed] = {}
        for name in names:
            if name.isdecimal():
                failed |= await self._each("release", name)
            else:
                failed |= await self._commands.release([name])
        return failed

    async def requeue(self, name: str) -> None:
        """End a running job and put it back into the queue."""
        await self._change("requeue", name)

    async def hold(self, name: str) -> None:
        """Keep a pending job from starting."""
        await self._change("hold", name)

    async def _each(self, call: str, name: str, *more: object) -> dict[str, SlurmFailed]:
        try:
            await self._worker.ask(call, int(name), *more)
        except SlurmFailed as error:
            return {name: error}
        return {}

    async def _change(self, verb: str, name: str) -> None:
        if name.isdecimal():
            await self._worker.ask(verb, int(name))
        else:
            await getattr(self._commands, verb)(name)


def _change(update: Update) -> dict[str, Any]:
    """Return what pyslurm's `JobSubmitDescription` is to hold."""
    what: dict[str, Any] = {"admin_comment": update.admin_comment}
    if update.nodes:
        what["required_nodes"] = list(update.nodes)
    if update.gres:
        what["gres_per_node"] = update.gres
    return what


def _job(raw: dict[str, Any]) -> SlurmJob:
    sets, rows = ("states", "gres"), ("nodes", "excluded", "pinned")
    return SlurmJob(
        **{
            **raw,
            **{key: frozenset(raw[key]) for key in sets},
            **{key: tuple(raw[key]) for key in rows},
        }
    )
