"""Expected waits: by learned lengths, and none where a length is not known."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.book import Device
from slurm_interleave.orchestrator.core.commands import Operate
from slurm_interleave.orchestrator.core.forecast import NOT_KNOWN, Expected, expected_waits
from slurm_interleave.orchestrator.core.habits import Habits
from slurm_interleave.sql.rows import Key
from tests.orchestrator.core.bench import Bench, granted, of, settle

A, B, C = Key("a", "g"), Key("b", "g"), Key("c", "g")
DEVICES = [Device("n1", minor) for minor in range(4)]
SECONDS = st.integers(0, 50).map(float)
LENGTHS = st.one_of(SECONDS, st.just(NOT_KNOWN))
TURNS = st.builds(Expected, st.sets(st.sampled_from(DEVICES), min_size=1), LENGTHS, LENGTHS)
QUEUES = st.lists(TURNS, max_size=12)
HELD = st.dictionaries(st.sampled_from(DEVICES), LENGTHS)


@given(HELD, QUEUES)
def test_a_wait_is_never_negative_and_who_needs_the_same_devices_later_waits_longer(
    held: dict[Device, float], queue: list[Expected]
) -> None:
    waits = list(expected_waits(held, queue))

    assert len(waits) == len(queue)
    assert all(wait_s >= 0 for wait_s in waits)
    for place, later in enumerate(queue):
        for before, earlier in enumerate(queue[:place]):
            if set(earlier.devices) & set(later.devices):
                assert waits[place] >= waits[before] + earlier.hold_s


@given(HELD, QUEUES, TURNS)
def test_who_comes_later_changes_nothing_for_those_before(
    held: dict[Device, float], queue: list[Expected], last: Expected
) -> None:
    assert list(expected_waits(held, [*queue, last]))[:-1] == list(expected_waits(held, queue))


@given(HELD, QUEUES)
def test_where_a_length_is_not_known_nobody_behind_it_gets_a_figure(
    held: dict[Device, float], queue: list[Expected]
) -> None:
    for place, wait_s in enumerate(expected_waits(held, queue)):
        behind = [turn for turn in queue[:place] if set(turn.devices) & set(queue[place].devices)]
        unknown = (
            queue[place].switch_s == NOT_KNOWN
            or any(held.get(device) == NOT_KNOWN for device in queue[place].devices)
            or any(NOT_KNOWN in (turn.switch_s, turn.hold_s) for turn in behind)
        )
        assert not unknown or wait_s == NOT_KNOWN


@given(st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=8))
def test_on_one_device_the_turns_follow_each_other(turns: list[tuple[float, float]]) -> None:
    queue = [Expected(DEVICES[:1], switch_s, hold_s) for switch_s, hold_s in turns]

    waits = list(expected_waits({}, queue))

    assert waits == [sum(map(sum, turns[:place])) + turns[place][0] for place in range(len(turns))]


@pytest.fixture
def bench() -> Bench:
    """Three jobs that have had turns: a holds for 30 s, b for 20, c for 10, each after a switch of 4 s."""
    bench = Bench("n1")
    for job in "abc":
        bench.start(job)
    bench.turn("c")
    for _ in range(2):
        for job, hold_s in (("a", 30), ("b", 20), ("c", 10)):
            hold(bench, job, hold_s)
    return bench


def hold(bench: Bench, job: str, hold_s: float) -> None:
    switched(bench, bench.acquire(job))
    bench.at += hold_s
    bench.yield_(job)


def switched(bench: Bench, commands: Sequence[object], switch_s: float = 4) -> None:
    """Let a switch that *commands* begin take its time."""
    bench.at += switch_s
    settle(bench, commands)  # type: ignore[arg-type]


def waits(bench: Bench, *keys: Key) -> dict[Key, float]:
    return bench.core.forecast.waits(keys or (A, B, C), bench.at)


def test_a_waiter_is_told_what_is_left_of_the_holder_and_all_before_him(bench: Bench) -> None:
    switched(bench, bench.acquire("a"))
    bench.acquire("b")
    bench.acquire("c")

    assert waits(bench) == {B: 30 + 4, C: 30 + 4 + 20 + 4}
    bench.at += 12
    assert waits(bench) == {B: 18 + 4, C: 18 + 4 + 20 + 4}


def test_what_was_told_comes_true_where_everybody_keeps_to_his_habits(bench: Bench) -> None:
    switched(bench, bench.acquire("a"))
    bench.at += 5
    bench.acquire("b")
    bench.acquire("c")
    told = {key: bench.at + wait_s for key, wait_s in waits(bench).items()}

    bench.at += 25
    for job, hold_s in (("a", 20), ("b", 10)):
        out = bench.yield_(job)
        switched(bench, out)
        key = B if job == "a" else C
        assert bench.core.state.leases[key].granted == told[key]
        bench.at += hold_s


def test_while_state_is_moved_what_is_left_of_it_is_told(bench: Bench) -> None:
    switched(bench, bench.acquire("a"))
    bench.acquire("b")
    moves = bench.yield_("a")
    bench.at += 1

    assert waits(bench) == {B: 3}
    bench.at += 3.5
    assert waits(bench) == {B: 0}
    assert granted(settle(bench, moves)) == ["b"]


def test_nobody_is_told_a_figure_before_all_lengths_are_known() -> None:
    bench = Bench("n1")
    for job in "abc":
        bench.start(job)
    settle(bench, bench.acquire("a"))
    bench.acquire("b")
    bench.acquire("c")
    assert waits(bench) == {}, "nobody has ever yielded"

    bench.at += 30
    switched(bench, bench.yield_("a"))
    assert waits(bench) == {}, "b has never yielded, and c has never come"
    bench.at += 20
    switched(bench, bench.yield_("b"))
    bench.acquire("a")
    bench.acquire("b")
    assert waits(bench) == {}, "c has never yielded"
    bench.at += 10
    switched(bench, bench.yield_("c"))
    assert waits(bench) == {B: 30 + 4}


def test_a_holder_who_holds_much_longer_than_ever_gives_no_figure_any_more(bench: Bench) -> None:
    switched(bench, bench.acquire("a"))
    bench.acquire("b")

    bench.at += 31
    assert waits(bench) == {B: 4}, "it is over each moment"
    bench.at += 30
    assert waits(bench) == {}


def test_a_phase_has_a_length_of_its_own_and_a_new_one_that_of_all() -> None:
    habits = Habits()
    for _ in range(3):
        habits.held(A, "rollout", 60, None)
        habits.held(A, "train", 20, None)
    habits.held(A, "train", 20, None)

    lengths = {
        phase: usual and usual.usual_s
        for phase in ("rollout", "train", "eval")
        if (usual := habits.hold(A, phase)) or True
    }

    assert lengths == {"rollout": 60, "train": 20, "eval": 20}
    assert habits.hold(B, "train") is None


def test_however_many_phases_a_job_names_few_are_kept() -> None:
    habits = Habits()
    for step in range(1000):
        habits.held(A, f"step {step}", step, None)

    assert len(habits._habits[A].holds) == 8
    assert habits.hold(A, "step 999") == (999, 999)
    assert habits.hold(A, "step 5") == (997, 998), "as for any phase"


@pytest.mark.parametrize("event", [ev.Suspended(0, "a", True), ev.Draining(0, "a", "n1", True)])
def test_a_holder_whom_somebody_has_stopped_gives_no_figure(bench: Bench, event: ev.Event) -> None:
    switched(bench, bench.acquire("a"))
    bench.acquire("b")

    bench.tell(event)

    assert waits(bench) == {}


def test_a_waiter_that_could_not_use_a_turn_is_told_nothing_and_counts_for_nobody(bench: Bench) -> None:
    switched(bench, bench.acquire("a"))
    bench.acquire("b")
    bench.acquire("c")

    bench.tell(ev.Suspended(bench.at, "b", True))

    assert waits(bench) == {C: 30 + 4}


def test_a_switch_that_failed_gives_no_figure_until_it_is_tried_again(bench: Bench) -> None:
    switched(bench, bench.acquire("a"))
    bench.acquire("b")
    out = bench.fail_snapshots(bench.yield_("a"))
    for order in of(Operate, out):
        out += bench.done(order)

    assert waits(bench) == {}
    bench.wake(out)
    assert waits(bench) == {B: 4}


def test_only_the_head_of_a_long_queue_is_looked_at(bench: Bench) -> None:
    switched(bench, bench.acquire("a"))
    bench.acquire("b")
    bench.acquire("c")

    assert bench.core.forecast.waits([B, C], bench.at, most=1) == {B: 34}


def test_a_job_that_waits_for_several_groups_waits_for_the_last_of_them() -> None:
    bench = Bench("n1")
    for job, group, device in (("a", "x", 0), ("b", "y", 1), ("d", "x", 0), ("d", "y", 1)):
        bench.start(job, group, n1=(device,))
    keys = {name: Key(*name) for name in (("d", "x"), ("d", "y"))}
    for job, group, hold_s in (("d", "x", 5), ("a", "x", 30), ("d", "y", 5), ("b", "y", 50), ("d", "x", 5)):
        switched(bench, bench.acquire(job, group))
        bench.at += hold_s
        bench.yield_(job, group=group)
    switched(bench, bench.acquire("a", "x"))
    settle(bench, bench.acquire("b", "y"))
    bench.tell(ev.Acquire(bench.at, "d", "x", "", ev.CallId(900), ("y",)))

    [wait_s] = bench.core.forecast.waits([keys["d", "x"]], bench.at).values()

    assert wait_s == 50 + 4


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(("acquire", "yield", "pass"))), max_size=60)
)
def test_in_any_history_who_is_behind_waits_longer_or_is_told_nothing(history: list[tuple[str, str]]) -> None:
    bench = Bench("n1")
    devices = {"a": (0,), "b": (0, 1), "c": (1,), "d": (0, 1)}
    keys = [Key(job, "g") for job in devices]
    for job, minors in devices.items():
        bench.start(job, n1=minors)
    for job, what in history:
        if what == "acquire":
            switched(bench, bench.acquire(job), 2)
        elif what == "yield" and bench.holds(job):
            switched(bench, bench.yield_(job), 2)
        bench.at += 3
        found = waits(bench, *keys)
        place = {key: bench.core.turns.place(key, bench.at)[0] for key in found}
        assert all(wait_s >= 0 for wait_s in found.values())
        for behind in (key for key in found if set(devices[key.job_id]) == {0, 1}):
            for other in found:
                assert place[other] > place[behind] or found[other] <= found[behind] or other == behind
