"""Profiles are what the turns of a workload had in common, the newer ones more."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.client.core.states import SliceState
from slurm_interleave.orchestrator.pairing.profile import HALF_LIFE_S, Profile, as_text, by_name, learn, parse
from slurm_interleave.sql.rows import Slice

NOW = 1e9


def turn(number: int, held: float = 120.0, off: float = 200.0, **more: Any) -> Slice:
    granted = NOW - 10_000 + number * 400
    row = Slice(
        epoch=number, job_id="7", group="g", role="trainer", uid=1, user="u", account="ml", partition="p",
        name="math", backend="sim", nodes=("n1", "n2"), devices=("n1/0", "n1/1", "n2/0", "n2/1"),
        phase="train", requested=granted - 30, granted=granted, ended=granted + held,
        state=SliceState.YIELDED, switched=True, switch_s=20, snapshot_s=12, restore_s=5,
        switch_bytes=400, off_s=off, share=2.0,
    )  # fmt: skip
    return replace(row, **more)


def test_a_profile_has_the_step_without_its_waits() -> None:
    [found] = learn([turn(n) for n in range(10)], NOW)

    assert found.name == "ml/math/trainer/2x2"
    assert (found.held_s, found.period_s, found.buffered) == (120, 320, False)
    assert (found.snapshot_s, found.restore_s, found.context_bytes) == (12, 5, 200)
    assert (found.nodes, found.devices) == (2, 2)


def test_turns_without_partners_say_what_a_step_takes_where_there_are_some() -> None:
    shared = [turn(n, off=2.0) for n in range(20)]
    single = [turn(n, off=200.0, share=4.0) for n in range(20, 25)]

    [found] = learn(shared + single, NOW)

    assert found.period_s == 320
    assert found.buffered


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({}, "ml/math/trainer/2x2"),
        ({"profile": "mine"}, "mine"),
        ({"account": "art"}, "art/math/trainer/2x2"),
        ({"account": ""}, "-/math/trainer/2x2"),
        ({"name": ""}, "ml/7/trainer/2x2"),
        ({"role": "sampler"}, "ml/math/sampler/2x2"),
        ({"nodes": ("n1",), "devices": ("n1/0", "n1/1")}, "ml/math/trainer/1x2"),
        ({"devices": ("n1/0", "n2/0")}, "ml/math/trainer/2x1"),
    ],
)
def test_turns_are_learned_under_what_the_user_says_or_else_all_that_tells_jobs_apart(
    more: dict[str, Any], name: str
) -> None:
    found = learn([turn(n) for n in range(5)] + [turn(n, **more) for n in range(5)], NOW)

    assert {one.name for one in found} == {"ml/math/trainer/2x2", name}


def test_old_turns_count_less_in_all_that_is_learned() -> None:
    then = NOW - 4 * HALF_LIFE_S
    old = [replace(turn(n, off=1.0), ended=then, granted=then - 50) for n in range(30)]
    moved = {"snapshot_s": 2, "restore_s": 1, "switch_bytes": 8}
    new = [turn(n, held=150 + n % 2, off=300.0, **moved) for n in range(30, 60)]

    [found] = learn(old + new, NOW)

    assert (found.held_s, found.period_s, found.buffered) == (150, 450, False)
    assert found.spread < 0.01
    assert (found.snapshot_s, found.restore_s, found.context_bytes) == (2, 1, 4)


def test_a_turn_counts_half_as_much_as_one_that_is_14_days_newer() -> None:
    fortnight = [replace(turn(0), ended=NOW - 14 * 86400.0, granted=NOW - 15 * 86400.0)] * 5

    [found] = learn(fortnight + [replace(turn(0), granted=NOW - 120, ended=NOW)] * 5, NOW)

    assert found.turns == pytest.approx(7.5)


def test_what_some_turns_do_not_tell_is_learned_from_the_others() -> None:
    silent = {"off_s": 0.0, "switched": False, "snapshot_s": 0, "restore_s": 0, "switch_bytes": 0}
    rows = [turn(n, **silent) for n in range(20)] + [turn(n) for n in range(20, 25)]

    [found] = learn(rows, NOW)

    assert (found.period_s, found.buffered) == (320, False)
    assert (found.snapshot_s, found.restore_s, found.context_bytes) == (12, 5, 200)


def test_one_long_step_does_not_change_how_much_steps_vary() -> None:
    steady = [turn(n, held=120 + n % 3) for n in range(20)]

    [found] = learn([*steady, turn(20, held=5000)], NOW)

    assert found.spread < 0.02


def test_a_step_has_the_turns_of_each_phase_and_seldom_ones_count_as_seldom_as_they_are() -> None:
    rows = []
    for n in range(40):
        rows.append(turn(n, held=60 + n % 3, off=10.0, phase="rollout"))
        rows.append(turn(n, held=120, off=30.0, phase="train"))
        if n % 10 == 0:
            rows.append(turn(n, held=50, off=20.0, phase="eval"))

    [found] = learn(rows, NOW)

    assert [(phase.name, phase.held_s) for phase in found.phases] == [
        *(("eval", 50.0), ("rollout", 61.0), ("train", 120.0))
    ]
    assert found.phases[0].times == pytest.approx(0.1, abs=0.01)
    assert found.turns == pytest.approx(84, abs=1)
    assert found.phases[1].spread > found.phases[2].spread == 0
    assert found.held_s == pytest.approx(186, abs=1)
    assert found.period_s == pytest.approx(228, abs=1)
    assert parse({"profiles": json.loads(json.dumps(as_text([found])))}) == [found]


def test_names_that_are_given_once_are_no_phases() -> None:
    [found] = learn([turn(n, phase=f"step {n}") for n in range(10)], NOW)

    assert (found.held_s, found.period_s, found.phases) == (120, 320, ())


def test_a_phase_that_gave_way_at_safe_points_is_one_turn() -> None:
    rows = []
    for n in range(10):
        whole = turn(n)
        first = replace(whole, ended=whole.granted + 50, state=SliceState.PAUSED)
        rest = replace(whole, granted=whole.ended + 30, ended=whole.ended + 100, off_s=0.0)
        rows += [first, rest]
    lost = [turn(10, state=SliceState.PAUSED), turn(11, state=SliceState.REVOKED)]

    [found] = learn([*rows, *lost, turn(12)], NOW)

    assert (found.held_s, found.period_s, found.buffered) == (120, 320, False)


def test_a_phase_that_gave_way_had_partners_if_one_of_its_parts_had() -> None:
    rows = []
    for n in range(5):
        whole = turn(n, off=2.0, share=4.0)
        first = replace(whole, ended=whole.granted + 50, state=SliceState.PAUSED)
        rest = replace(whole, granted=whole.ended + 30, ended=whole.ended + 100, share=2.0)
        rows += [first, rest]

    [found] = learn([*rows, *(turn(n, share=4.0) for n in range(5, 8))], NOW)

    assert (found.held_s, found.period_s) == (120, 320)


def test_a_workload_has_the_size_of_its_newest_turn() -> None:
    small = {"profile": "mine", "nodes": ("n1",), "devices": ("n1/0",)}

    [found] = learn([turn(n, **small) for n in range(9)] + [turn(9, profile="mine")], NOW)

    assert (found.nodes, found.devices) == (2, 2)


def test_a_workload_with_few_turns_or_unfinished_ones_is_not_known() -> None:
    assert learn([turn(n) for n in range(4)], NOW) == []
    assert learn([turn(n, state=SliceState.REVOKED) for n in range(9)], NOW) == []
    assert learn([turn(n, off=0.0) for n in range(9)], NOW) == []


def test_what_is_exported_can_be_imported() -> None:
    found = learn([turn(n) for n in range(10)], NOW)

    assert parse({"profiles": as_text(found)}) == found


@pytest.mark.parametrize(
    "data",
    [
        [],
        {"profiles": {}},
        {"profiles": [3]},
        {"profiles": [{"name": "a"}]},
        {"profiles": [{"name": "a", "period_s": 10, "held_s": 20}]},
        {"profiles": [{"name": "a", "period_s": float("nan"), "held_s": 1}]},
        {"profiles": [{"name": "a", "period_s": 10, "held_s": "1"}]},
        {"profiles": [{"name": "a", "period_s": 10, "held_s": True}]},
        {"profiles": [{"name": "a", "period_s": 10, "held_s": 1, "devices": 0}]},
        {"profiles": [{"name": "a", "period_s": 10, "held_s": 1, "colour": 3}]},
    ],
)
def test_what_is_no_profile_is_refused(data: Any) -> None:
    with pytest.raises(BadArgument, match="profile"):
        parse(data)


@pytest.mark.parametrize(
    "phase", [3, ["p"], ["p", -1], ["p", float("nan")], ["p", "1"], ["p", True], [1, 1], ["p", 1, 1, 1, 1]]
)
def test_what_is_no_phase_is_refused(phase: Any) -> None:
    with pytest.raises(BadArgument, match="phase"):
        parse({"profiles": [{"name": "a", "period_s": 10, "held_s": 1, "phases": [phase]}]})


def test_of_two_profiles_with_one_name_the_later_counts() -> None:
    made = [Profile("a", 10, 4), Profile("b", 9, 3), Profile("a", 20, 5)]

    assert by_name(made) == {"a": made[2], "b": made[1]}


def test_a_declared_profile_needs_three_values() -> None:
    assert parse({"profiles": [{"name": "a", "period_s": 10, "held_s": 4}]}) == [Profile("a", 10, 4)]
