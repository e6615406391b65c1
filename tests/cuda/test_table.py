"""What the driver's answers mean, and which device goes where: decisions alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_interleave.node_agent.backends.cuda.table import (
    TO,
    Call,
    State,
    Verdict,
    device_map,
    judge,
    meaning,
    towards,
)

FROM = {
    Call.LOCK: State.RUNNING,
    Call.CHECKPOINT: State.LOCKED,
    Call.RESTORE: State.CHECKPOINTED,
    Call.UNLOCK: State.LOCKED,
}
CODES = [None, 1, 2, 3, 304, 401, 500, 600, 800, 801]


@pytest.mark.parametrize("call", Call)
def test_success_is_success_whatever_else_is_said(call: Call) -> None:
    assert judge(call, 0, None, ended=True) is Verdict.DONE


@pytest.mark.parametrize("call", Call)
@pytest.mark.parametrize("code", CODES)
def test_the_failure_of_a_process_that_has_ended_is_its_end(call: Call, code: int | None) -> None:
    assert judge(call, code, None, ended=True) is Verdict.GONE


@pytest.mark.parametrize("call", Call)
@pytest.mark.parametrize("code", CODES)
def test_a_driver_that_gives_no_state_has_lost_the_process(call: Call, code: int | None) -> None:
    assert judge(call, code, None, ended=False) is Verdict.LOST


@pytest.mark.parametrize("call", Call)
@pytest.mark.parametrize("code", [code for code in CODES if code != 2])
def test_what_was_not_carried_out_leaves_the_process_where_it_was(call: Call, code: int | None) -> None:
    assert judge(call, code, (0, FROM[call]), ended=False) is Verdict.REFUSED


@pytest.mark.parametrize("call", Call)
@pytest.mark.parametrize("code", CODES)
def test_what_was_carried_out_though_nobody_said_so_is_done(call: Call, code: int | None) -> None:
    assert judge(call, code, (0, TO[call]), ended=False) is Verdict.DONE


@pytest.mark.parametrize("call", Call)
@pytest.mark.parametrize("state", [State.FAILED, State.CHECKPOINTING, State.RESTORING, 7])
def test_states_of_others_and_states_without_an_end_are_lost(call: Call, state: int) -> None:
    assert judge(call, 401, (0, state), ended=False) is Verdict.LOST


def test_a_restore_that_met_no_memory_is_lost_though_the_state_says_saved() -> None:
    assert judge(Call.RESTORE, 2, (0, State.CHECKPOINTED), ended=False) is Verdict.LOST
    assert judge(Call.CHECKPOINT, 2, (0, State.LOCKED), ended=False) is Verdict.REFUSED


def test_a_process_that_was_saved_before_needs_no_lock() -> None:
    assert judge(Call.LOCK, 401, (0, State.CHECKPOINTED), ended=False) is Verdict.DONE


@pytest.mark.parametrize("code", [3, 304])
def test_a_process_without_cuda_is_none_of_ours_unless_it_had_been_before(code: int) -> None:
    assert judge(Call.LOCK, code, (code, 0), ended=False) is Verdict.GONE
    assert judge(Call.CHECKPOINT, code, (code, 0), ended=False) is Verdict.LOST


@pytest.mark.parametrize("goal", [State.RUNNING, State.CHECKPOINTED])
@pytest.mark.parametrize("state", [State.RUNNING, State.LOCKED, State.CHECKPOINTED])
def test_every_sure_state_leads_to_both_goals_in_two_calls(goal: State, state: State) -> None:
    at, calls = state, 0
    while (call := towards(goal, at)) is not None:
        assert FROM[call] == at
        at, calls = TO[call], calls + 1

    assert at is goal
    assert calls <= 2


@pytest.mark.parametrize("state", [-1, 3, 4, 5, 6])
def test_other_states_lead_nowhere(state: int) -> None:
    with pytest.raises(ValueError, match=f"its state is {state}"):
        towards(State.RUNNING, state)


def test_codes_are_explained() -> None:
    assert "UVM" in meaning(801, 1)
    assert meaning(12345, 1) == "error 12345"
    assert "no answer within 7 s" in meaning(None, 7)


@given(st.data())
def test_a_map_names_every_device_once_on_each_side(data: st.DataObject) -> None:
    devices = [f"GPU-{index}" for index in range(data.draw(st.integers(1, 8)))]
    size = data.draw(st.integers(1, len(devices)))
    old = data.draw(st.permutations(devices))[:size]
    new = data.draw(st.permutations(devices))[:size]

    pairs = device_map(devices, old, new)

    if old == new:
        assert pairs == []
        return
    assert [pair[0] for pair in pairs] == devices
    assert sorted(pair[1] for pair in pairs) == sorted(devices)
    assert all(dict(pairs)[one] == other for one, other in zip(old, new, strict=True))


def test_a_map_leaves_alone_what_need_not_move() -> None:
    assert device_map(["a", "b", "c", "d"], ["a"], ["c"]) == [("a", "c"), ("b", "b"), ("c", "a"), ("d", "d")]
