"""Figures of the comparison, from what the jobs, the simulated devices and the report say."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from demo.jobs import Outcome
from slurm_interleave.client.timeline.work import Work, busy_s
from slurm_interleave.client.wire import interleave_v1_pb2 as pb


@dataclass(frozen=True)
class Alone:
    """The jobs one after the other, each with the device to itself. Seconds."""

    makespan_s: float
    busy_s: float

    @property
    def duty(self) -> float:
        """Share of the makespan in which the device computed."""
        return self.busy_s / self.makespan_s


@dataclass(frozen=True)
class Interleaved(Alone):
    """The jobs taking turns."""

    switches: int
    snapshot_s: float
    restore_s: float
    handovers: int
    overhead_s: float  # ours, median of the handovers to a job that was waiting


def measure_alone(outcomes: Sequence[Outcome], work: Sequence[Work]) -> Alone:
    """Return the figures of exclusive runs; the time that Slurm takes between two jobs is left out."""
    return Alone(sum(outcome.seconds for outcome in outcomes), busy_s(work))


def measure_interleaved(
    outcomes: Sequence[Outcome], work: Sequence[Work], slices: Sequence[pb.Slice]
) -> Interleaved:
    """Return the figures of the runs that shared a device."""
    makespan = max(o.end for o in outcomes) - min(o.start for o in outcomes)
    overheads = handover_overheads(slices)
    return Interleaved(
        makespan,
        busy_s(work),
        switches=sum(row.switched for row in slices),
        snapshot_s=sum(row.snapshot_s for row in slices),
        restore_s=sum(row.restore_s for row in slices),
        handovers=len(overheads),
        overhead_s=median(overheads) if overheads else 0.0,
    )


def handover_overheads(slices: Sequence[pb.Slice]) -> list[float]:
    """Return, for each grant to a job that waited for another's yield, the seconds that are ours.

    That is the time from the yield to the grant, less the slowest node's snapshot and restore.
    """
    ordered = sorted((row for row in slices if row.start), key=lambda row: row.start)
    return [
        after.start - before.end - after.snapshot_s - after.restore_s
        for before, after in itertools.pairwise(ordered)
        if before.job_id != after.job_id and after.requested < before.end
    ]
