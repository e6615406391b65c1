"""What sacct knows of jobs that ran, as jobs that would take turns."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import NamedTuple

from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.orchestrator.simulator.program import Cost
from slurm_interleave.orchestrator.simulator.traces import Declared
from slurm_interleave.orchestrator.simulator.workloads import Workload

# `-P` escapes nothing, so that a name may have `|` and quotes in it: the fields beside it have neither.
_LINE = re.compile(r"([^|]+)\|(.*)\|([0-9]{1,10})\|([^|]*)", re.DOTALL)
_GPUS = re.compile(r"(?:^|,)gres/gpu(:[^=,]+)?=([0-9]{1,6})(?=,|$)")


class FromSacct(NamedTuple):
    """Jobs that ran, and how many lines are not among them, by the reason."""

    jobs: list[Declared]
    left_out: Counter[str]


def from_sacct(text: str, phases: Workload, cost: Cost, *, members: int = 2) -> FromSacct:
    """Return what jobs that ran would do if they took turns, *members* on the same devices.

    *text* is what `sacct -X -n -P -o JobID,JobName,ElapsedRaw,AllocTRES` prints. A step of each is as
    *phases* says; jobs with the same number of devices share them in the order of the list. Raises
    `BadArgument` where a line has not the four fields.
    """
    waiting: dict[int, list[tuple[str, str, int]]] = {}
    left_out: Counter[str] = Counter()
    for line in filter(None, (line.rstrip("\r") for line in text.split("\n"))):
        found = _LINE.fullmatch(line)
        if not found:
            raise BadArgument(
                f"sacct line {line!r} has not the four fields; "
                "ask for: sacct -X -n -P -o JobID,JobName,ElapsedRaw,AllocTRES"
            )
        job, name, elapsed, tres = found.groups()
        steps, devices = int(int(elapsed) / phases.period_s), _gpus(tres)
        if not devices:
            left_out["had no GPU"] += 1
        elif not steps:
            left_out[f"ran for less than a step of {phases.period_s:g} s"] += 1
        else:
            waiting.setdefault(devices, []).append((job, name, steps))
    jobs = [
        Declared(
            **vars(replace(phases, name=f"{job}.{name}")), steps=steps, snapshot_s=cost.snapshot_s,
            restore_s=cost.restore_s, devices=devices, group=f"{devices}x-{place // members}",
        )
        for devices, alike in waiting.items()
        for place, (job, name, steps) in enumerate(alike)
    ]  # fmt: skip
    return FromSacct(jobs, left_out)


def _gpus(tres: str) -> int:
    """Return how many GPUs a job had: `gres/gpu=N`, or the sum of the types where Slurm counts only these."""
    counted = _GPUS.findall(tres)
    return sum(int(number) for kind, number in counted if not kind) or sum(int(n) for _, n in counted)
