"""What `interleave pair --pools` says of jobs on sampler and trainer devices. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.orchestrator.pairing.predict import TwoPools, two_pools

_TIMES = tuple(field.name for field in fields(TwoPools))


def parse_pools(data: Any) -> dict[str, TwoPools]:
    """Return the steps of `{"pools": [{"job_id", "rollout_s", "train_s", ...}]}`. Raises `BadArgument`."""
    entries = data.get("pools") if isinstance(data, Mapping) else None
    if not isinstance(entries, list) or not entries:
        raise BadArgument("the file needs `pools`, a list of objects with job_id, rollout_s and train_s")
    found = dict(map(_parsed, entries))
    if len(found) < len(entries):
        raise BadArgument("`pools` names a job twice")
    return found


def _parsed(entry: Any) -> tuple[str, TwoPools]:
    known = isinstance(entry, Mapping) and {"job_id", "rollout_s", "train_s"} <= set(entry)
    if not known or set(entry) - {"job_id", *_TIMES} or not isinstance(entry["job_id"], str):
        raise BadArgument(f"{entry!r} needs job_id, rollout_s and train_s, and may have sync_s, switch_s")
    times = {name: entry.get(name, 0.0) for name in _TIMES}
    for name, value in times.items():
        if type(value) not in (int, float) or not 0 <= value < 1e9:
            raise BadArgument(f"job {entry['job_id']!r}: {name} is {value!r}; it takes seconds, 0 or more")
    if not times["rollout_s"] + times["train_s"]:
        raise BadArgument(f"job {entry['job_id']!r}: rollout_s and train_s are 0")
    return entry["job_id"], TwoPools(**times)


def in_lines(jobs: Mapping[str, TwoPools], epsilon: float) -> Iterator[str]:
    """Yield what becomes of *jobs* as one group, and whether each bears it."""
    told = two_pools(list(jobs.values()))
    yield (
        f"{' + '.join(jobs)}: a step of each in {told.period_s:.1f} s at least; duty of the samplers "
        f"{told.sampler_duty:.0%}, of the trainers {told.trainer_duty:.0%}"
    )
    for job_id, slowdown in zip(jobs, told.slowdowns, strict=True):
        no = "" if slowdown <= 1 + epsilon else f": no: it may take {1 + epsilon:.2f}"
        yield f"{job_id}: {slowdown:.2f} times as long as alone{no}"
