"""Slurm through its own commands: argument lists, no shell, each with a deadline."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from slurm_interleave.client.core.errors import SlurmFailed
from slurm_interleave.client.core.slurm_command import parse_release, run_slurm
from slurm_interleave.orchestrator.placement.ports import Update
from slurm_interleave.orchestrator.placement.reservations import Reservation, parse_reservations
from slurm_interleave.orchestrator.placement.scontrol import Change, change
from slurm_interleave.orchestrator.placement.squeue import SlurmJob, has_run, parse_squeue
from slurm_interleave.orchestrator.placement.traits import Traits, parse_traits

_NODE, _USED = re.compile(r"NodeName=(\S+)"), re.compile(r"\bGresUsed=(\S+)")
_TYPED = re.compile(r"(?:^|,)(\w+:[\w.-]+):(\d+)")
_SLURMDBD = re.compile(r"^AccountingStorageType\s*=\s*accounting_storage/slurmdbd\s*$", re.MULTILINE)
_NO_SUCH_JOB = "Invalid job id specified"
_PRIVATE_JOBS = re.compile(r"^PrivateData\s*=.*\b(?:jobs|all)\b", re.MULTILINE)
_SLURM_USER = re.compile(r"^SlurmUser\s*=.*\((\d+)\)", re.MULTILINE)
# How much squeue writes of the task numbers of an array: all. And scontrol's input is typed by nobody.
_ENV = {"SLURM_BITSTR_LEN": "0", "INPUTRC": "/dev/null"}
# The one data_parser that 24.11 to 26.05 all have; 22.05 has none, and 26.11 drops this one.
_PARSER, _PARSER_SINCE, _PARSER_UNTIL = "v0.0.42", (24, 11), (26, 5)


def _leads(name: str) -> bool:
    """Tell whether *name* is that of the first component of a heterogeneous job."""
    return name.endswith("+0")


class SlurmCommands:
    """Runs `squeue` and `scontrol`, which find the cluster by SLURM_CONF as usual."""

    def __init__(self, timeout_s: float = 10.0) -> None:
        self._timeout_s = timeout_s
        self._json = ""  # how squeue is asked for it, once that is known

    async def jobs(self) -> list[SlurmJob]:
        """Return all jobs that slurmctld knows, those of hidden partitions too."""
        try:
            self._json = self._json or _json_option(await self._run("squeue", "--version"))
            return parse_squeue(await self._run("squeue", self._json, "--all"))
        except SlurmFailed:
            self._json = ""  # another release may have been installed
            raise

    async def job(self, job_id: str) -> SlurmJob:
        """Return one job, or the record of an array."""
        # squeue 22.05 writes all of them with --json, whichever are asked for.
        found = [job for job in await self.jobs() if job_id in (job.job_id, job.name)]
        if not found:
            raise SlurmFailed(f"squeue: job {job_id} is not known to slurmctld")
        return found[0]

    async def runs(self, job_id: str) -> bool:
        """Tell whether a job has nodes, asked for alone; False only if slurmctld says that it has none."""
        try:
            return has_run(await self._run("scontrol", "--all", "--oneliner", "show", "job", job_id), job_id)
        except SlurmFailed as error:
            if _NO_SUCH_JOB not in str(error):
                raise
        # slurmctld calls a job invalid that it hides, which it does from nobody but these two for sure.
        config = await self._run("scontrol", "show", "config")
        if _PRIVATE_JOBS.search(config) and os.getuid() not in (0, *map(int, _SLURM_USER.findall(config))):
            raise SlurmFailed(f"job {job_id}: PrivateData=jobs may hide it; run as SlurmUser to be sure")
        return False

    async def update(self, updates: Sequence[Update]) -> dict[str, SlurmFailed]:
        """Change jobs, each once or more often; return, by name, why that failed. Raises nothing."""
        changes: list[Change] = []
        failed: dict[str, SlurmFailed] = {}
        for one in updates:
            try:
                what = [await self._only(one.name, one.nodes)] if one.nodes else []
            except SlurmFailed as error:
                failed[one.name] = error
                continue
            what += [f"NumNodes={one.count}-{one.count}"] if one.count else []
            what += [f"Gres={one.gres}"] if one.gres else []
            changes.append(
                (one.name, ("update", f"JobId={one.name}", *what, f"AdminComment={one.admin_comment}"))
            )
        return failed | await change(self._run_on, changes)

    async def _only(self, name: str, nodes: tuple[str, ...]) -> str:
        """Return what makes *nodes* the only ones of a job."""
        if not _leads(name):
            return f"ReqNodeList={','.join(nodes)}"
        # scontrol 22.05 takes no ReqNodeList for the first component: it would mean the whole job.
        every = await self._run("sinfo", "--all", "--noheader", "--Node", "--format=%N")
        return f"ExcNodeList={','.join(sorted(set(every.split()) - set(nodes)))}"

    async def unpin(self, name: str) -> None:
        """Take back which nodes a pending job must have."""
        await self._run("scontrol", "update", f"JobId={name}", f"{'Exc' if _leads(name) else 'Req'}NodeList=")

    async def node_states(self) -> dict[str, str]:
        """Return the state of each node in small letters, as sinfo writes it: `idle`, `down*`."""
        text = await self._run("sinfo", "--all", "--noheader", "--Node", "--format=%N %T")
        rows = [line.split() for line in text.splitlines()]
        return {row[0]: row[1].lower() for row in rows if len(row) == 2}

    async def traits(self) -> dict[str, Traits]:
        """Return what each node has."""
        text = await self._run("sinfo", "--all", "--noheader", "--Node", "--format=%N %b %G")
        return parse_traits(text)

    async def reservations(self) -> list[Reservation]:
        """Return Slurm's reservations."""
        return parse_reservations(await self._run("scontrol", "--oneliner", "show", "reservation"))

    async def used(self) -> dict[tuple[str, str], int]:
        """Return how much of each typed GRES, as in `ilva:g0`, is in use on each node."""
        text = await self._run("scontrol", "--oneliner", "--details", "show", "nodes")
        found = {}
        for line in text.splitlines():
            node, gres = _NODE.match(line), _USED.search(line)
            if node and gres:
                found.update({(node[1], name): int(count) for name, count in _TYPED.findall(gres[1])})
        return found

    async def release(self, names: Sequence[str]) -> dict[str, SlurmFailed]:
        """Let held jobs start, in this order; return, by name, why that failed. Raises nothing."""
        return await change(self._run_on, [(name, ("release", name)) for name in names])

    async def requeue(self, name: str) -> None:
        """End a running job and put it back into the queue."""
        await self._run("scontrol", "requeue", name)

    async def hold(self, name: str) -> None:
        """Keep a pending job from starting."""
        await self._run("scontrol", "hold", name)

    async def keeps_jobs(self) -> bool:
        """Tell whether Slurm has a slurmdbd, which keeps jobs for sacct."""
        return bool(_SLURMDBD.search(await self._run("scontrol", "show", "config")))

    async def account(self, job_id: str, admin_comment: str) -> bool:
        """Write the admin comment of a job into Slurm's accounting; False: that does not know its end yet."""
        options = ("--noheader", "--parsable2", "--allocations", "--format=End", f"--jobs={job_id}")
        if set(await self._lines("sacct", *options)) & {"", "Unknown"}:
            return False
        where = ("where", f"jobid={job_id}")
        await self._run(
            "sacctmgr", "--immediate", "modify", "job", *where, "set", f"AdminComment={admin_comment}"
        )
        return True

    async def _lines(self, *argv: str) -> list[str]:
        return (await self._run(*argv)).strip().split("\n")

    async def _run(self, *argv: str) -> str:
        return await self._run_on(argv, "")

    async def _run_on(self, argv: Sequence[str], text: str) -> str:
        try:
            return await run_slurm(argv, self._timeout_s, _ENV, text)
        except OSError as error:
            raise SlurmFailed(f"{' '.join(argv[:3])}: cannot be run: {error}") from error


def _json_option(version: str) -> str:
    """Return how the squeue that says *version* of itself is asked for JSON."""
    known = _PARSER_SINCE <= parse_release(version) <= _PARSER_UNTIL
    return f"--json={_PARSER}" if known else "--json"
