"""What `squeue --json` says about jobs, in the shapes of Slurm 22.05 to 26.05."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from slurm_interleave.client.core.errors import SlurmFailed
from slurm_interleave.client.core.hostlist import expand
from slurm_interleave.client.core.states import SLURM_ENDED
from slurm_interleave.client.core.values import parse_label

T = TypeVar("T")
_NO_LIMIT = 0xFFFFFFF0  # INFINITE and its like in slurm.h, where a release writes them as plain numbers
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
    title: str = ""
    """What its user called it."""
    restarts: int = 0
    """How often it was put back into the queue."""
    array: str = ""
    """The id of the job array that it belongs to."""
    task: int | None = None
    """Its number in the array; None for the record of all tasks that are no jobs of their own yet."""
    tasks: str = ""
    """The numbers of those tasks, as in 0,2-4."""
    tasks_at_once: int = 0
    """How many tasks of the array may run at a time; 0: all."""
    heterogeneous: str = ""
    """The id of the heterogeneous job that it is a component of, which is that of the first one."""
    excluded: tuple[str, ...] = ()
    """Nodes that it must not have."""
    max_nodes: int = 0
    """How many nodes it may have; 0 if Slurm does not say."""
    pinned: tuple[str, ...] | None = None
    """Nodes that it must have; None if Slurm does not say."""
    constraint: str = ""
    """The features that its nodes must have, as its user wrote it."""
    gres: frozenset[str] | None = None
    """What it asks for on each node, as in ilva:g0:1; None if Slurm does not say."""
    limit_min: int = 0
    """For how many minutes it may run; 0: without limit, or Slurm does not say."""
    ends: int = 0
    """When Slurm ends it at the latest, in seconds since 1970; 0 for one that waits."""
    uid: int = -1
    """Whose it is; -1 if Slurm does not say."""

    @property
    def name(self) -> str:
        """What scontrol calls this record alone: an array's id, or a heterogeneous job's, means all of it."""
        if self.array:
            return f"{self.array}_{f'[{self.tasks}]' if self.task is None else self.task}"
        return f"{self.job_id}+0" if self.leads else self.job_id

    def hours_left(self, now: float) -> int:
        """Return for how many hours it may run from *now* on, a part as a whole; 0: no limit is known."""
        if not self.limit_min:
            return 0
        left_s = self.limit_min * 60 if self.pending else self.ends - now
        return max(1, math.ceil(left_s / 3600))

    @property
    def leads(self) -> bool:
        """True for the first component of a heterogeneous job."""
        return self.heterogeneous == self.job_id

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


def has_run(text: str, job_id: str) -> bool:
    """Tell from `scontrol --oneliner show job` whether *job_id* has nodes; in doubt it has."""
    lines = [line for line in text.splitlines() if line.startswith(f"JobId={job_id} ")]
    states = {state for line in lines for state in re.findall(r"\bJobState=(\w+)", line)}
    return not states or not states <= _FINISHED | {"PENDING"}


def _describe(errors: list[Any]) -> str:
    return "; ".join(
        str(e.get("description") or e.get("error") or e) if isinstance(e, dict) else str(e) for e in errors
    )


def task_numbers(text: str, most: int) -> list[int]:
    """Return the first *most* numbers of an array expression such as `0,2-4,10-20:5`."""
    return list(islice((number for part in text.split(",") if part for number in _task_range(part)), most))


def _task_range(text: str) -> range:
    ends, _, step = text.partition(":")
    first, _, last = ends.partition("-")
    return range(int(first), int(last or first) + 1, int(step or 1))


def _job(record: dict[str, Any]) -> SlurmJob:
    states = record["job_state"]
    array, heterogeneous = _number(record.get("array_job_id")), _number(record.get("het_job_id"))
    task = _number(record.get("array_task_id"))
    tasks = str(record.get("array_task_string") or "").partition("%")[0]
    # The last one has the record of all to itself, which 26.05 does not say at a change.
    if tasks.isdecimal():
        task, tasks = int(tasks), ""
    return SlurmJob(
        job_id=str(_number(record["job_id"])),
        states=frozenset([states] if isinstance(states, str) else states),
        priority=_number(record["priority"]),
        reason=str(record.get("state_reason") or "None"),
        admin_comment=str(record.get("admin_comment") or ""),
        nodes=expand(str(record.get("nodes") or "")),
        dependency=str(record.get("dependency") or ""),
        account=str(record.get("account") or ""),
        title=parse_label(str(record.get("name") or "")),
        restarts=max(_number(record.get("restart_cnt")), 0),
        array=str(array) if array > 0 else "",
        task=task if array > 0 and task >= 0 else None,
        tasks=tasks,
        tasks_at_once=max(_number(record.get("array_max_tasks")), 0),
        heterogeneous=str(heterogeneous) if heterogeneous > 0 else "",
        excluded=expand(str(record.get("excluded_nodes") or "")),
        max_nodes=max(_number(record.get("max_nodes")), 0),
        pinned=_optional(record, "required_nodes", expand),
        constraint=str(record.get("features") or ""),
        gres=_optional(record, "tres_per_node", _gres),
        limit_min=_limit(record.get("time_limit")),
        ends=max(_number(record.get("end_time")), 0),
        uid=_number(record.get("user_id")),
    )


def _optional(record: dict[str, Any], key: str, read: Callable[[str], T]) -> T | None:
    return read(str(record[key] or "")) if key in record else None


def _gres(text: str) -> frozenset[str]:
    """Return the parts of `gres:ilva:g0:1,...`, as 22.05 writes it, or of `gres/ilva:g0:1,...`."""
    return frozenset(
        part.removeprefix("gres:").removeprefix("gres/").replace("=", ":") for part in text.split(",") if part
    )


def _limit(value: Any) -> int:
    minutes = _number(value)
    return minutes if 0 < minutes < _NO_LIMIT else 0


def _number(value: Any) -> int:
    """Return a number that is plain, or {"set", "infinite", "number"}; -1 for unset or without limit."""
    if value is None:
        return -1
    if not isinstance(value, dict):
        return int(value)
    return int(value["number"]) if value["set"] and not value["infinite"] else -1
