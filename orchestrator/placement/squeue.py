"""What `squeue --json` says about jobs, in the shapes of Slurm 22.05 to 26.05."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from slurm_interleave.client.core.errors import SlurmFailed
from slurm_interleave.client.core.states import SLURM_ENDED
from slurm_interleave.orchestrator.placement.hostlist import expand

_FINISHED = SLURM_ENDED | {"REVOKED"}
_STARTED = frozenset({"RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING"})


@dataclass(frozen=True)
class SlurmJob:
    """One job as slurmctld knows it."""

    job_id: str
    states: frozenset[str]
    """The state and its flags, such as PENDING or RUNNING, COMPLETING."""
    priority: int
    reason: str
    admin_comment: str
    nodes: tuple[str, ...]
    """Where it runs; empty before."""
    dependency: str = ""
    """Of other jobs, as far as it is not met."""
    account: str = ""
    restarts: int = 0
    """How often it was put back into the queue."""

    @property
    def finished(self) -> bool:
        """True once the job is over on all its nodes."""
        return bool(self.states & _FINISHED) and not self.states & {"COMPLETING", "PENDING"}

    @property
    def pending(self) -> bool:
        """True while the job has no nodes, a requeued one too."""
        return "PENDING" in self.states and not self.states & _STARTED

    @property
    def startable(self) -> bool:
        """True if Slurm may start it: pending, and held by nobody, not by Slurm either."""
        return self.pending and self.priority != 0

    @property
    def started(self) -> bool:
        """True while the job has its nodes."""
        return bool(self.states & _STARTED)

    @property
    def has_processes(self) -> bool:
        """True while it runs or is suspended, and does not end already."""
        return bool(self.states & {"RUNNING", "SUSPENDED"}) and not self.states & {"COMPLETING", "PENDING"}

    @property
    def held(self) -> bool:
        """True if it waits for a release; not for one that Slurm held since it could not be launched."""
        return self.pending and self.priority == 0 and self.reason.startswith(("JobHeld", "None"))


def parse_squeue(text: str) -> list[SlurmJob]:
    """Return the jobs in the output of `squeue --json`.

    Raises `SlurmFailed` if the output cannot be read or reports an error: with slurmctld away, squeue 22.05
    exits with 0, an empty list of jobs, and an error inside.
    """
    try:
        data = json.loads(text)
        errors, jobs = data.get("errors") or [], data["jobs"]
        if errors:
            raise SlurmFailed(f"squeue --json reports: {_describe(errors)}")
        return [_job(record) for record in jobs]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SlurmFailed(f"squeue --json: unknown form: {type(error).__name__}: {error}") from error


def _describe(errors: list[Any]) -> str:
    return "; ".join(
        str(e.get("description") or e.get("error") or e) if isinstance(e, dict) else str(e) for e in errors
    )


def _job(record: dict[str, Any]) -> SlurmJob:
    states = record["job_state"]
    return SlurmJob(
        job_id=str(_number(record["job_id"])),
        states=frozenset([states] if isinstance(states, str) else states),
        priority=_number(record["priority"]),
        reason=str(record.get("state_reason") or "None"),
        admin_comment=str(record.get("admin_comment") or ""),
        nodes=expand(str(record.get("nodes") or "")),
        dependency=str(record.get("dependency") or ""),
        account=str(record.get("account") or ""),
        restarts=_number(record.get("restart_cnt") or 0),
    )


def _number(value: Any) -> int:
    """Return a number that is plain, or {"set", "infinite", "number"}; -1 for unset or without limit."""
    if not isinstance(value, dict):
        return int(value)
    return int(value["number"]) if value["set"] and not value["infinite"] else -1
