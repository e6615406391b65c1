"""Stands in for pyslurm 25.11: the names that we use, held against the real ones by test_pyslurm.py.

What Slurm has comes from the JSON file $PYSLURM_STANDIN; what is changed is written to that name with .log.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_FILE = Path(os.environ.get("PYSLURM_STANDIN", "/nonexistent"))
_GIVEN: dict[str, Any] = json.loads(_FILE.read_text()) if _FILE.exists() else {}
__version__ = _GIVEN.get("version", "25.11.2")

if "fatal" in _GIVEN:  # as libslurm where there is no slurm.conf
    print(_GIVEN["fatal"], file=sys.stderr)
    os._exit(1)


class PyslurmError(Exception):
    pass


class RPCError(PyslurmError):
    pass


class _Record:
    """An object with the attributes of a JSON object; those that its class has, and None for the others."""

    _known: tuple[str, ...] = ()

    def __init__(self, **values: Any) -> None:
        for name in self._known:
            setattr(self, name, values.pop(name, None))
        if values:
            raise AttributeError(f"no attribute {', '.join(values)}")


class MultiClusterMap:
    def __init__(self, records: list[Any]) -> None:
        self._records = records

    def values(self) -> Iterator[Any]:
        return iter(self._records)


class Job(_Record):
    _known = (
        "account", "admin_comment", "allocated_nodes", "array_id", "array_task_id", "array_tasks_parallel",
        "array_tasks_waiting", "dependencies", "end_time", "excluded_nodes", "gres_per_node",
        "heterogeneous_id",
        "constraints", "id", "max_nodes", "name", "priority", "requeue_count", "required_nodes", "state",
        "state_reason", "time_limit", "user_id",
    )  # fmt: skip

    def __init__(self, job_id: int) -> None:
        super().__init__(id=job_id)

    @staticmethod
    def load(job_id: int) -> Job:
        _wait("job")
        found = [job for job in Jobs.load().values() if job.id == job_id]
        if not found:
            raise RPCError("Invalid job id specified")
        return found[0]

    def modify(self, changes: JobSubmitDescription) -> None:
        self._do("modify", {key: value for key, value in vars(changes).items() if value is not None})

    def hold(self, mode: str | None = None) -> None:
        self._do("hold", mode)

    def release(self) -> None:
        self._do("release", None)

    def requeue(self, hold: bool = False) -> None:
        self._do("requeue", hold)

    def _do(self, verb: str, what: Any) -> None:
        Job.load(self.id)  # type: ignore[attr-defined]
        with _FILE.with_suffix(".log").open("a") as log:
            print(json.dumps([verb, self.id, what]), file=log)  # type: ignore[attr-defined]


class Jobs(MultiClusterMap):
    @staticmethod
    def load(preload_passwd_info: bool = False, frozen: bool = False) -> Jobs:
        _wait("jobs")
        return Jobs([_filled(Job(raw["id"]), raw) for raw in _GIVEN.get("jobs", [])])


class JobSubmitDescription(_Record):
    _known = ("admin_comment", "gres_per_node", "required_nodes")


class Node(_Record):
    _known = ("name", "state")


class Nodes(MultiClusterMap):
    @staticmethod
    def load(preload_passwd_info: bool = False) -> Nodes:
        return Nodes([Node(**raw) for raw in _GIVEN.get("nodes", [])])


class Reservation(_Record):
    _known = ("is_active", "name", "nodes")


class Reservations(MultiClusterMap):
    @staticmethod
    def load() -> Reservations:
        return Reservations([Reservation(**raw) for raw in _GIVEN.get("reservations", [])])


def _filled(job: Job, raw: dict[str, Any]) -> Job:
    for name, value in raw.items():
        if name not in Job._known:
            raise AttributeError(name)
        setattr(job, name, value)
    return job


def _wait(call: str) -> None:
    """Do as libslurm where slurmctld does not answer, or as one that crashes."""
    if _GIVEN.get("hangs") == call:
        time.sleep(60)
    if _GIVEN.get("dies") == call:
        print("fatal: slurmctld sent garbage", file=sys.stderr)
        os._exit(1)
