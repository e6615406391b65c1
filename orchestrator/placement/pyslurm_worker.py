"""The process that talks to Slurm through pyslurm: a JSON request a line on stdin, a JSON reply on stdout.

A process of its own, since libslurm ends the one that it is in where it finds no slurm.conf, and pyslurm
keeps the interpreter's lock while slurmctld lets it wait. Calls and attributes are those of pyslurm 25.11.2.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import Any, TextIO

from slurm_interleave.client.core.hostlist import expand
from slurm_interleave.orchestrator.placement.reservations import Reservation
from slurm_interleave.orchestrator.placement.squeue import SlurmJob

# slurm_job_state_string() names one flag, or the base state where no flag is set: what lies under the flag.
_UNDER = {
    "REQUEUED": "PENDING",
    "REQUEUE_FED": "PENDING",
    "REQUEUE_HOLD": "PENDING",
    "RESV_DEL_HOLD": "PENDING",
    "SPECIAL_EXIT": "PENDING",
    "RESIZING": "RUNNING",
    "SIGNALING": "RUNNING",
    "STAGE_OUT": "COMPLETING",
    "STOPPED": "RUNNING",
}


def slurm_job(job: Any) -> SlurmJob:
    """Return a `pyslurm.Job` as ours."""
    array, tasks = job.array_id, job.array_tasks_waiting or ""
    # It says None for number 0 too; the record of the tasks that wait has their numbers.
    task = (job.array_task_id or 0) if array and not tasks else None
    if tasks.isdecimal():  # the last one has the record of all to itself
        task, tasks = int(tasks), ""
    return SlurmJob(
        job_id=str(job.id),
        states=frozenset(filter(None, (job.state, _UNDER.get(job.state)))),
        priority=_number(job.priority),
        reason=job.state_reason or "None",
        admin_comment=job.admin_comment or "",
        nodes=expand(job.allocated_nodes or ""),
        dependency=_dependency(job.dependencies),
        account=job.account or "",
        title=job.name or "",
        restarts=job.requeue_count,
        array=str(array or ""),
        task=task,
        tasks=tasks,
        tasks_at_once=max(_number(job.array_tasks_parallel), 0),
        heterogeneous=str(job.heterogeneous_id or ""),
        excluded=expand(job.excluded_nodes or ""),
        max_nodes=max(_number(job.max_nodes), 0),
        pinned=expand(job.required_nodes or ""),
        constraint=",".join(job.constraints or ()),
        gres=frozenset(
            f"{name.removeprefix('gres/')}:{count}" for name, count in (job.gres_per_node or {}).items()
        ),
        limit_min=max(_number(job.time_limit), 0),
        ends=max(_number(job.end_time), 0),
        uid=_number(job.user_id),
    )


def answer(pyslurm: Any, call: str, arguments: list[Any]) -> Any:
    """Do what a request asks. Raises what pyslurm raises."""
    match call:
        case "jobs":
            return [asdict(slurm_job(job)) for job in pyslurm.Jobs.load().values()]
        case "job":
            return asdict(slurm_job(pyslurm.Job.load(arguments[0])))
        case "update":
            return pyslurm.Job(arguments[0]).modify(pyslurm.JobSubmitDescription(**arguments[1]))
        case "hold" | "release" | "requeue":
            return getattr(pyslurm.Job(arguments[0]), call)()
        case "nodes":
            return {node.name: node.state for node in pyslurm.Nodes.load().values()}
        case "reservations":
            loaded = pyslurm.Reservations.load().values()
            return [asdict(Reservation(r.name, expand(r.nodes or ""), r.is_active)) for r in loaded]
        case _:
            raise ValueError(f"{call!r} is no call of this process")


def serve(pyslurm: Any, requests: TextIO, replies: TextIO) -> None:
    """Answer until *requests* end."""
    for line in requests:
        call, *arguments = json.loads(line)
        try:
            _say(replies, {"result": answer(pyslurm, call, arguments)})
        except (pyslurm.PyslurmError, ValueError, TypeError, AttributeError) as error:
            _say(replies, {"error": f"{type(error).__name__}: {error}"})


def main() -> None:
    """Say which pyslurm this is, or why there is none; then answer."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed
    os.environ["SLURM_BITSTR_LEN"] = "0"  # libslurm then writes the task numbers of an array to the end
    try:
        import pyslurm
    except ImportError as error:
        _say(replies, {"error": str(error)})
        return
    _say(replies, {"result": pyslurm.__version__})
    serve(pyslurm, sys.stdin, replies)


def _say(replies: TextIO, reply: dict[str, Any]) -> None:
    text = json.dumps(reply, default=sorted)  # of sets
    replies.write(text + "\n")
    replies.flush()


def _number(value: Any) -> int:
    """Return a number; -1 for None, or for the word that stands for no limit."""
    return value if isinstance(value, int) else -1


def _dependency(parsed: dict[str, Any] | None) -> str:
    """Return on what a job depends, in words; empty for None, or where nothing is left to wait for."""
    kinds = (parsed or {}).items()
    words = [f"{kind}:{':'.join(map(str, jobs))}" for kind, jobs in kinds if isinstance(jobs, list) and jobs]
    return ",".join([*words, *(["singleton"] if (parsed or {}).get("singleton") else [])])


if __name__ == "__main__":
    main()
