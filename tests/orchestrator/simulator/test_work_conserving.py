"""Devices do not wait for the one whose turn it would be, where the periods of two jobs differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.policy import POLICIES
from slurm_interleave.orchestrator.core.rules import Rules
from slurm_interleave.orchestrator.simulator.figures import duty, together
from slurm_interleave.orchestrator.simulator.program import Cost, Job, Place
from slurm_interleave.orchestrator.simulator.workloads import MIXED, TRAINER, job_of
from slurm_interleave.orchestrator.simulator.world import World

PLACE = {TRAINER: Place(("n1",))}
JOBS = [job_of(work, work.name, PLACE, 60, cost=Cost(snapshot_s=0.5, restore_s=0.5)) for work in MIXED]
BOUND = sum(work.held_s / work.period_s for work in MIXED)


class StrictAlternation(World):
    """Two jobs, of which neither asks again before the other has had its turn."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        super().__init__(jobs, Rules())
        self._last = ""
        self._early: ev.Acquire | None = None

    def _tell(self, event: ev.Event, now: float) -> None:
        if isinstance(event, ev.Acquire) and event.job_id == self._last:
            self._early = event
            return
        if isinstance(event, ev.Yield):
            self._last = event.job_id
        super()._tell(event, now)
        if self._early is not None and self._early.job_id != self._last:
            early, self._early = self._early, None
            super()._tell(replace(early, at=now), now)


def duty_of(world: World) -> float:
    turns = world.run().turns
    return duty(turns, together(turns, warm_up=0.1))


@pytest.mark.parametrize("policy", POLICIES)
def test_each_policy_comes_near_the_bound(policy: str) -> None:
    assert duty_of(World(JOBS, Rules(policy=policy))) >= 0.97 * BOUND


def test_strict_alternation_would_leave_devices_idle() -> None:
    assert duty_of(StrictAlternation(JOBS)) < 0.80
