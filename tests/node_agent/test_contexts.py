from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_interleave.client.core.errors import Busy, InterleaveError, JobFaulted, WrongState
from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent.contexts import (
    MOVING,
    JobContext,
    Outcome,
    Run,
    Seen,
    Verb,
    after,
    is_same_attempt,
    on_call,
    on_order,
    reconciled,
)

NONE, RESIDENT, SAVED, FAULTED = Context.NONE, Context.RESIDENT, Context.SAVED, Context.FAULTED
SAVING, RESTORING = Context.SAVING, Context.RESTORING
SNAPSHOT, RESTORE, DISCARD = Verb.SNAPSHOT, Verb.RESTORE, Verb.DISCARD


@pytest.mark.parametrize(
    ("state", "verb", "expected"),
    [
        (NONE, SNAPSHOT, WrongState),
        (NONE, RESTORE, WrongState),
        (RESIDENT, SNAPSHOT, Run(SAVING)),
        (RESIDENT, RESTORE, Outcome(RESIDENT)),
        (SAVING, SNAPSHOT, Busy),
        (RESTORING, RESTORE, Busy),
        (SAVED, SNAPSHOT, WrongState),
        (SAVED, RESTORE, Run(RESTORING)),
        (FAULTED, SNAPSHOT, JobFaulted),
        (FAULTED, RESTORE, JobFaulted),
    ],
)
def test_calls_follow_the_table_of_the_wire_contract(
    state: Context, verb: Verb, expected: Run | Outcome | type[InterleaveError]
) -> None:
    context = JobContext(state)

    if isinstance(expected, type):
        with pytest.raises(expected):
            on_call(context, verb)
    else:
        assert on_call(context, verb) == expected


@pytest.mark.parametrize(
    ("state", "verb", "expected"),
    [
        (NONE, SNAPSHOT, Run(SAVING)),
        (NONE, RESTORE, Outcome(NONE)),
        (RESIDENT, SNAPSHOT, Run(SAVING)),
        (RESIDENT, RESTORE, Outcome(RESIDENT)),
        (SAVED, SNAPSHOT, Outcome(SAVED)),
        (SAVED, RESTORE, Run(RESTORING)),
        (FAULTED, SNAPSHOT, Outcome(FAULTED, error="lost")),
        (FAULTED, RESTORE, Outcome(FAULTED, error="lost")),
        (FAULTED, DISCARD, Run(FAULTED)),
        (SAVED, DISCARD, Run(SAVED)),
    ],
)
def test_an_order_that_is_carried_out_already_is_ok(
    state: Context, verb: Verb, expected: Run | Outcome
) -> None:
    assert on_order(JobContext(state, fault="lost"), verb) == expected


def test_an_order_during_a_move_is_refused() -> None:
    with pytest.raises(Busy):
        on_order(JobContext(SAVING), RESTORE)


def test_a_failed_snapshot_leaves_what_the_backend_says() -> None:
    untouched = after(Outcome(RESIDENT, error="no room"), SNAPSHOT, JobContext(RESIDENT), saved_by="")
    lost = after(Outcome(FAULTED, error="broken"), SNAPSHOT, JobContext(RESIDENT), saved_by="")

    assert untouched == JobContext(RESIDENT)
    assert lost == JobContext(FAULTED, fault="broken")


def test_a_failed_restore_keeps_the_size_of_what_is_saved() -> None:
    before = JobContext(SAVED, 100)

    assert after(Outcome(SAVED, error="no room"), RESTORE, before, saved_by="") == before


def test_a_move_cut_short_did_not_happen_where_nobody_can_look() -> None:
    assert reconciled(JobContext(SAVING), None).state is RESIDENT
    assert reconciled(JobContext(RESTORING, 5), None) == JobContext(SAVED, 5)


def test_a_device_state_that_its_application_holds_is_not_lost_because_the_device_is_empty() -> None:
    held = JobContext(SAVED, 5, saved_by="app_channel")

    assert reconciled(held, Seen(NONE)) == held
    assert reconciled(JobContext(SAVED, 5), Seen(NONE)) == JobContext(NONE)


def test_what_an_application_left_on_the_devices_is_no_context() -> None:
    held = JobContext(SAVED, 50, saved_by="app_channel", kept=3)

    assert reconciled(held, Seen(RESIDENT, 3)) == held
    assert reconciled(held, Seen(SAVED, 3)) == held  # another backend has saved it
    assert reconciled(held, Seen(RESIDENT, 4)) == JobContext(RESIDENT)


def test_an_application_that_left_the_devices_while_the_agent_was_down_is_saved() -> None:
    assert reconciled(JobContext(SAVING, saved_by="app_channel"), Seen(NONE)).state is SAVED
    assert reconciled(JobContext(SAVING, saved_by="app_channel"), Seen(RESIDENT, 5)) == JobContext(RESIDENT)


def test_a_faulted_job_is_whole_again_only_when_nothing_of_it_is_left() -> None:
    faulted = JobContext(FAULTED, fault="lost")

    assert reconciled(faulted, Seen(RESIDENT, 5)) == faulted
    assert reconciled(faulted, Seen(NONE)) == JobContext(NONE)


@given(
    st.sampled_from(list(Context)),
    st.sampled_from(["", "app_channel"]),
    st.sampled_from([None, Seen(NONE), Seen(RESIDENT, 1), Seen(SAVED, 1)]),
)
def test_after_a_restart_no_context_is_in_a_move(state: Context, saved_by: str, seen: Seen | None) -> None:
    assert reconciled(JobContext(state, saved_by=saved_by), seen).state not in MOVING


@pytest.mark.parametrize(
    ("state", "same_request", "had", "has", "expected"),
    [
        (NONE, True, False, False, True),  # the prolog runs twice
        (RESIDENT, True, True, True, True),  # and again for a second step
        (NONE, True, True, False, False),  # it ran, and is gone
        (SAVED, True, False, False, False),
        (NONE, False, False, True, False),  # another request is another job
    ],
)
def test_a_second_start_is_a_new_attempt_only_if_the_job_ran(
    state: Context, same_request: bool, had: bool, has: bool, expected: bool
) -> None:
    same = is_same_attempt(JobContext(state), same_request=same_request, had_processes=had, has_processes=has)

    assert same is expected
