"""Slurm through its own commands: argument lists, no shell, each with a deadline."""

from __future__ import annotations

import re

from slurm_interleave.client.core.errors import SlurmFailed
from slurm_interleave.client.core.slurm_command import run_slurm
from slurm_interleave.orchestrator.placement.squeue import SlurmJob, parse_squeue

_NODE, _USED = re.compile(r"NodeName=(\S+)"), re.compile(r"\bGresUsed=(\S+)")
_TYPED = re.compile(r"(?:^|,)(\w+:[\w.-]+):(\d+)")
# How much squeue writes of the task numbers of an array: all.
_WHOLE = {"SLURM_BITSTR_LEN": "0"}


def _leads(name: str) -> bool:
    """Tell whether *name* is that of the first component of a heterogeneous job."""
    return name.endswith("+0")


class SlurmCommands:
    """Runs `squeue` and `scontrol`, which find the cluster by SLURM_CONF as usual."""

    def __init__(self, timeout_s: float = 10.0) -> None:
        self._timeout_s = timeout_s

    async def jobs(self) -> list[SlurmJob]:
        """Return all jobs that slurmctld knows."""
        return parse_squeue(await self._run("squeue", "--json"))

    async def pin(self, name: str, nodes: tuple[str, ...], gres: str, admin_comment: str) -> None:
        """Give a pending job its nodes and its GRES and note that."""
        only, more = await self._only(name, nodes), (f"Gres={gres}", f"AdminComment={admin_comment}")
        await self._run("scontrol", "update", f"JobId={name}", only, *more)

    async def _only(self, name: str, nodes: tuple[str, ...]) -> str:
        """Return what makes *nodes* the only ones of a job."""
        if not _leads(name):
            return f"ReqNodeList={','.join(nodes)}"
        # scontrol 22.05 takes no ReqNodeList for the first component: it would mean the whole job.
        every = await self._run("sinfo", "--all", "--noheader", "--Node", "--format=%N")
        return f"ExcNodeList={','.join(sorted(set(every.split()) - set(nodes)))}"

    async def note(self, name: str, admin_comment: str) -> None:
        """Write the job's admin comment."""
        await self._run("scontrol", "update", f"JobId={name}", f"AdminComment={admin_comment}")

    async def unpin(self, name: str) -> None:
        """Take back which nodes a pending job must have."""
        await self._run("scontrol", "update", f"JobId={name}", f"{'Exc' if _leads(name) else 'Req'}NodeList=")

    async def down_nodes(self) -> frozenset[str]:
        """Return the names of the nodes that are down."""
        text = await self._run("sinfo", "--all", "--noheader", "--Node", "--format=%N %T")
        rows = [line.split() for line in text.splitlines()]
        return frozenset(row[0] for row in rows if len(row) == 2 and row[1].startswith("down"))

    async def used(self) -> dict[tuple[str, str], int]:
        """Return how much of each typed GRES, as in `ilva:g0`, is in use on each node."""
        text = await self._run("scontrol", "--oneliner", "--details", "show", "nodes")
        found = {}
        for line in text.splitlines():
            node, gres = _NODE.match(line), _USED.search(line)
            if node and gres:
                found.update({(node[1], name): int(count) for name, count in _TYPED.findall(gres[1])})
        return found

    async def release(self, name: str) -> None:
        """Let a held job start."""
        await self._run("scontrol", "release", name)

    async def requeue(self, name: str) -> None:
        """End a running job and put it back into the queue."""
        await self._run("scontrol", "requeue", name)

    async def hold(self, name: str) -> None:
        """Keep a pending job from starting."""
        await self._run("scontrol", "hold", name)

    async def _run(self, *argv: str) -> str:
        try:
            return await run_slurm(argv, self._timeout_s, _WHOLE)
        except OSError as error:
            raise SlurmFailed(f"{' '.join(argv[:3])}: cannot be run: {error}") from error
