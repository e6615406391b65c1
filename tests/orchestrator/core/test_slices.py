"""How a lease that ended is written down."""

from __future__ import annotations

import pytest

from slurm_interleave.client.core.states import YIELDS, SliceState
from slurm_interleave.orchestrator.core.company import UNSHARED
from slurm_interleave.orchestrator.core.slices import slice_of
from slurm_interleave.sql.rows import Lease, Member, Slice

LIVE = (SliceState.RUNNING, SliceState.WAITING)


def written(state: SliceState, ended: float) -> Slice:
    lease = Lease("17", "g", 3, "train", requested=1.0, granted=2.0)
    return slice_of(
        Member("17", "g", fault="out of memory"), ("n1",), ("n1/0",), lease, state, ended, UNSHARED, -1
    )


@pytest.mark.parametrize("state", sorted(YIELDS))
def test_a_turn_that_its_job_ended_itself_is_no_fault_though_the_job_is_faulted_by_then(
    state: SliceState,
) -> None:
    assert (written(state, 9.0).state, written(state, 9.0).comment) == (state, "")


@pytest.mark.parametrize("state", sorted(set(SliceState) - YIELDS - set(LIVE)))
def test_a_turn_of_a_faulted_job_that_ended_otherwise_says_why(state: SliceState) -> None:
    assert (written(state, 9.0).state, written(state, 9.0).comment) == (SliceState.FAULTED, "out of memory")


@pytest.mark.parametrize("state", LIVE)
def test_what_lasts_is_no_fault_yet(state: SliceState) -> None:
    assert written(state, 0.0).state is state
