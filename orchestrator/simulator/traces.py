"""Traces in files: recorded holds and declared jobs.

Each file is one JSON object. `timesliced` is a record (see records.py), `slices` what `sinterleave --json`
prints (see slices.py). `jobs` declares jobs:
`{"name", "rollout_s", "train_s", "sync_s", "staleness", "two_pools", "colocated", "steps", "start_s",
"snapshot_s", "restore_s", "devices", "group", "count", "spread"}`. What is left out is as in `Declared`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.orchestrator.simulator.program import Cost, Job, Place
from slurm_interleave.orchestrator.simulator.records import holds_of, jobs_of
from slurm_interleave.orchestrator.simulator.slices import holds_in, places_of
from slurm_interleave.orchestrator.simulator.workloads import Workload, job_of, pools_of

_KINDS: Mapping[Any, type] = {"str": str, "bool": bool, "int": int, "float": float}
_MOST = 10**9
_WANTED = {
    str: "a word",
    bool: "true or false",
    int: f"a whole number from 0 on, below {_MOST}",
    float: f"a number from 0 on, below {_MOST}",
}


@dataclass(frozen=True)
class Declared(Workload):
    """A job that does that, or *count* like it, of a trace; those of one *group* share devices. Seconds."""

    steps: int = 50
    start_s: float = 0.0
    snapshot_s: float = 0.5
    restore_s: float = 0.5
    devices: int = 1
    group: str = "group"
    count: int = 1
    spread: float = 0.05


def jobs_in(trace: Any, *, cost: Cost | None = None) -> list[Job]:
    """Return the jobs of a trace; *cost*: of every move, in place of the trace's.

    Raises `BadArgument` where the trace cannot be read.
    """
    if not isinstance(trace, Mapping):
        raise BadArgument("a trace is one JSON object, with `jobs`, `slices` or `timesliced`")
    if "timesliced" in trace:
        mode = str(_table(trace.get("meta", {}), "meta").get("mode", ""))
        return jobs_of(holds_of(trace), asynchronous="async" in mode, cost=cost)
    if "slices" in trace:
        holds = holds_in(_list(trace["slices"], "slices"))
        return jobs_of(holds, places_of(holds), cost=cost) if holds else []
    if "jobs" in trace:
        return declared_jobs([_declared(entry) for entry in _list(trace["jobs"], "jobs")], cost)
    raise BadArgument(
        "a trace has `jobs` (declared), `slices` (of sinterleave --json) or `timesliced` (recorded)"
    )


def declared_jobs(entries: Iterable[Declared], cost: Cost | None = None) -> list[Job]:
    """Return the jobs that *entries* declare."""
    jobs: dict[str, Job] = {}
    for entry in entries:
        for number in range(entry.count):
            name = f"{entry.name}-{number}" if entry.count > 1 else entry.name
            if name in jobs:
                raise BadArgument(f"two jobs of the trace are called {name}; give each a name of its own")
            places = {
                pool: Place((f"{entry.group}-{pool}",), tuple(range(entry.devices)))
                for pool in pools_of(entry)
            }
            own = cost or Cost(entry.snapshot_s, entry.restore_s)
            jobs[name] = job_of(
                entry, name, places, entry.steps,
                cost=own, start_s=entry.start_s, spread=entry.spread,
            )  # fmt: skip
    return list(jobs.values())


def _declared(entry: Any) -> Declared:
    values = _table(entry, "a job")
    types = {field.name: _KINDS[field.type] for field in fields(Declared)}
    unknown = sorted(values.keys() - types.keys())
    if unknown:
        raise BadArgument(f"a job of the trace has {', '.join(unknown)}; known are {', '.join(types)}")
    for name, value in values.items():
        if name != "name" and not _fits(value, types[name]):
            wanted = _WANTED[types[name]]
            raise BadArgument(
                f"job {values.get('name')} of the trace: {name} is {value!r}; it takes {wanted}"
            )
    try:
        made = Declared(**{**values, "name": str(values["name"])})
    except (KeyError, TypeError) as error:
        raise BadArgument(f"a job of the trace needs name, rollout_s and train_s: {error}") from error
    if not made.devices:
        raise BadArgument(f"job {made.name} of the trace: devices is 0; a job has at least one")
    return made


def _fits(value: Any, kind: type) -> bool:
    if kind not in (int, float):
        return isinstance(value, kind)
    return type(value) in (int, kind) and 0 <= value < _MOST


def _table(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadArgument(f"{what} of the trace is {value!r}, and must be a JSON object")
    return value


def _list(value: Any, what: str) -> Sequence[Any]:
    if not isinstance(value, list):
        raise BadArgument(f"`{what}` of the trace is {value!r}, and must be a list")
    return value
