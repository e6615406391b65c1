"""The formulas hold for what the production core does in the simulator."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import pairwise

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from slurm_interleave.orchestrator.core.policy import POLICIES
from slurm_interleave.orchestrator.core.rules import Rules
from slurm_interleave.orchestrator.pairing import predict
from slurm_interleave.orchestrator.pairing import profile as profiles
from slurm_interleave.orchestrator.pairing.profile import Profile
from slurm_interleave.orchestrator.simulator.figures import duty, together
from slurm_interleave.orchestrator.simulator.program import Cost, Place
from slurm_interleave.orchestrator.simulator.workloads import SAMPLER, TRAINER, Workload, job_of
from slurm_interleave.orchestrator.simulator.world import History, World

PLACES = {TRAINER: Place(("n1",)), SAMPLER: Place(("n2",))}
STEPS = 20
phase = st.floats(20, 400)
costs = st.builds(Cost, st.floats(0, 15), st.floats(0, 15))
policies = st.sampled_from(sorted(POLICIES))
Sync = tuple[Workload, Cost]
syncs = st.tuples(st.builds(Workload, st.just("w"), phase, phase), costs)


def run(jobs: list[Sync], policy: str = "fifo", spread: float = 0.0, steps: int = STEPS) -> History:
    made = [
        job_of(work, f"job-{n}", PLACES, steps, cost=cost, start_s=n * 1.0, spread=spread)
        for n, (work, cost) in enumerate(jobs)
    ]
    return World(made, Rules(policy=policy)).run()


def profile(job: Sync, spread: float = 0.0) -> Profile:
    work, cost = job
    return Profile(
        work.name, work.period_s, work.held_s, spread, work.staleness > 0, cost.snapshot_s, cost.restore_s
    )


def duty_if_all_switch(profiles: Sequence[Profile]) -> float:
    """Return the duty that is not exceeded while each grant is a switch: sum of b / sum of (b + s)."""
    held = sum(profile.held_s for profile in profiles)
    return held / (held + sum(profile.switch_s for profile in profiles))


def alternating_least_s(one: Profile, other: Profile) -> float:
    """Return the least period of two synchronous jobs that alternate: max(P1, P2, b1 + b2 + s1 + s2).

    It is reached where all moves are made before the next holder asks.
    """
    load = one.held_s + other.held_s + one.switch_s + other.switch_s
    return max(one.period_s, other.period_s, load)


def alternating_s(one: Profile, other: Profile) -> float:
    """Return their period where moves begin when the next holder asks, as they do first come, first served.

    Who finds the devices free waits for the other's snapshot and for its own restore in each step, so a job's
    P is longer by that.
    """
    first = one.period_s + other.snapshot_s + one.restore_s
    second = other.period_s + one.snapshot_s + other.restore_s
    return max(first, second, alternating_least_s(one, other))


def alternates_freely(one: Profile, other: Profile) -> bool:
    """Tell whether both handovers fit into the time that the slower one leaves: s1 + s2 <= max P - b1 - b2.

    Then the pair goes at its pace, but for the moves that it waits for.
    """
    load = one.held_s + other.held_s + one.switch_s + other.switch_s
    return load <= max(one.period_s, other.period_s)


def steady_duty(history: History) -> float:
    turns = [turn for turn in history.turns if turn.pool == TRAINER]
    return duty(turns, together(turns, warm_up=0.3))


@settings(max_examples=12, deadline=None)
@given(st.lists(syncs, min_size=2, max_size=4), policies)
def test_no_policy_exceeds_the_sum_of_shares(jobs: list[Sync], policy: str) -> None:
    # A window that begins and ends within turns holds at most one turn of each job more than its share.
    history = run(jobs, policy)
    begin, end = together(history.turns, warm_up=0.3)
    slack = sum(work.held_s for work, _ in jobs) / (end - begin)

    assert steady_duty(history) <= predict.duty_bound([profile(job) for job in jobs]) + slack


@settings(max_examples=12, deadline=None)
@given(
    st.builds(Workload, st.just("w"), phase, phase), st.builds(Workload, st.just("w"), phase, phase), costs
)
def test_where_each_grant_is_a_switch_duty_stays_below_the_share_of_holds(
    one: Workload, other: Workload, cost: Cost
) -> None:
    turns = sorted(run([(one, cost), (other, cost)]).turns, key=lambda turn: turn.granted)[8:25]
    if alternate(turn.job for turn in turns):
        whole = duty(turns, (turns[0].granted, turns[-1].granted))
        assert whole <= duty_if_all_switch([profile((one, cost)), profile((other, cost))]) + 1e-6


@settings(max_examples=12, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(syncs, syncs)
def test_two_jobs_that_alternate_have_the_period_of_the_formula(one: Sync, other: Sync) -> None:
    # Long enough for the shorter of two periods that differ by over 1 % to catch up: it waits from then on.
    history = run([one, other], steps=200)
    if not alternate(t.job for t in sorted(history.turns, key=lambda t: t.granted)[300:380]):
        return
    for name in ("job-0", "job-1"):
        granted = [turn.granted for turn in history.turns if turn.job == name][150:190]
        period = (granted[-1] - granted[0]) / (len(granted) - 1)
        assert abs(period / alternating_s(profile(one), profile(other)) - 1) < 0.01
        assert period > alternating_least_s(profile(one), profile(other)) * 0.999


@settings(max_examples=12, deadline=None)
@given(st.builds(Workload, st.just("w"), phase, phase), costs)
def test_two_equal_jobs_are_not_slowed_if_and_only_if_both_handovers_fit(work: Workload, cost: Cost) -> None:
    job = (work, cost)
    free = alternates_freely(profile(job), profile(job))

    turns = [turn for turn in run([job, job]).turns if turn.job == "job-0"]
    period = (turns[-1].granted - turns[6].granted) / (len(turns) - 7)

    if free:
        assert period <= (work.period_s + cost.snapshot_s + cost.restore_s) * 1.001
    elif 2 * (work.held_s + cost.snapshot_s + cost.restore_s) > work.period_s * 1.01:
        assert period > work.period_s * 1.001


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(phase, phase, st.floats(0, 10)), min_size=2, max_size=3), costs)
def test_no_group_on_two_pools_is_faster_than_the_formula(
    steps: list[tuple[float, float, float]], cost: Cost
) -> None:
    history = run([(Workload("w", r, t, y, two_pools=True), cost) for r, t, y in steps])
    switches = all(
        turn.switched for turn in history.turns if turn.granted > min(history.finished.values()) / 3
    )
    switch_s = cost.snapshot_s + cost.restore_s if switches else 0.0

    least = predict.two_pools([predict.TwoPools(r, t, y, switch_s) for r, t, y in steps]).period_s

    begins = len(steps) * switch_s * STEPS / 3  # turns that were not switches
    assert max(history.finished.values()) >= least * STEPS - begins - 1e-6


@pytest.mark.parametrize(
    ("jobs", "period_s", "duties"),
    [
        (((200, 50, 4, 3), (180, 60, 2, 5)), 200 + 4 + 180 + 2 + 3 + 5, (386, 116)),  # the samplers
        (((50, 200, 4, 3), (60, 180, 2, 5)), 200 + 4 + 180 + 2 + 3 + 5, (116, 386)),  # the trainers
        (((300, 100, 4, 3), (20, 30, 1, 5)), 300 + 100 + 4 + 3, (325, 135)),  # the longest job
        (((300, 100, 4, 3),), 300 + 100 + 4, (304, 104)),  # nobody moves its context
    ],
)
def test_a_group_on_two_pools_has_the_period_of_what_is_fully_used(
    jobs: tuple[tuple[float, float, float, float], ...], period_s: float, duties: tuple[float, float]
) -> None:
    found = predict.two_pools([predict.TwoPools(*job) for job in jobs])

    assert found.period_s == period_s
    assert found.slowdowns == tuple(period_s / (r + t + y) for r, t, y, _ in jobs)
    assert (found.sampler_duty, found.trainer_duty) == tuple(held / period_s for held in duties)


def alternate(names: Iterable[str]) -> bool:
    return all(before != after for before, after in pairwise(names))


# Both have noise of their own, which now and then keeps them apart: always the same examples.
@settings(max_examples=12, deadline=None, derandomize=True, phases=[Phase.generate])
@given(st.lists(syncs, min_size=2, max_size=3))
def test_a_rehearsal_says_what_the_core_will_do(jobs: list[Sync]) -> None:
    forecast = predict.rehearse([profile(job, 0.05) for job in jobs], turns=600)
    made = [
        job_of(work, f"job-{n}", PLACES, 100, cost=cost, start_s=n * 7.0, spread=0.05)
        for n, (work, cost) in enumerate(jobs)
    ]
    history = World(made, Rules()).run()
    end = together(history.turns)[1]

    for number, (work, _) in enumerate(jobs):
        yields = [t.yielded for t in history.turns if t.job == f"job-{number}" and t.yielded <= end]
        pace = (yields[-1] - yields[5]) / (len(yields) - 6) / work.period_s
        assert abs(forecast.slowdowns[number] / max(1.0, pace) - 1) < 0.06


@settings(max_examples=12, deadline=None, derandomize=True, phases=[Phase.generate])
@given(
    st.lists(
        st.tuples(
            st.builds(
                Workload,
                st.just("w"),
                st.floats(20, 800),
                st.floats(20, 300),
                staleness=st.sampled_from((0, 8)),
            ),
            st.builds(Cost, st.floats(0, 40), st.floats(0, 40)),
        ),
        min_size=2,
        max_size=4,
    )
)
def test_without_chance_a_rehearsal_does_what_the_core_does(jobs: list[Sync]) -> None:
    group, dice = [profile(job) for job in jobs], random.Random(1)  # noqa: S311 - as the rehearsal begins
    begins = [1000 + dice.random() * own.period_s for own in group]
    made = [
        job_of(work, f"{n}", PLACES, 200, cost=cost, start_s=begins[n] - work.period_s + _asks_before(work))
        for n, (work, cost) in enumerate(jobs)
    ]
    turns = World(made, Rules()).run().turns
    end = min(max(turn.yielded for turn in turns if turn.job == f"{n}") for n in range(len(jobs)))

    forecast = predict.rehearse(group, turns=int((end - 1000) * sum(1 / own.period_s for own in group)))

    seen = sorted((turn for turn in turns if turn.yielded <= end), key=lambda turn: turn.granted)
    for n, own in enumerate(group):
        ends = [turn.yielded for turn in seen if turn.job == f"{n}"]
        pace = (ends[-1] - ends[0]) / (len(ends) - 1) / own.period_s
        assert forecast.slowdowns[n] >= 1
        assert forecast.slowdowns[n] == pytest.approx(max(1.0, pace), rel=0.01)
    moves = sum(turn.granted - max(before.yielded, turn.asked) for before, turn in pairwise(seen))
    assert forecast.duty == pytest.approx(duty(seen, (1000, end)), rel=0.02)
    assert forecast.switch_share == pytest.approx(moves / (end - 1000), rel=0.02)


@settings(max_examples=10, deadline=None, derandomize=True, phases=[Phase.generate])
@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.floats(40, 200), st.floats(10, 80), costs), min_size=2, max_size=2
    )
)
def test_a_step_of_several_turns_moves_its_context_for_each(
    steps: list[tuple[int, float, float, Cost]],
) -> None:
    # The turns of a step are alike, so that each may as well be a step of its own.
    group = [
        Profile(
            f"{n}", count * (away + held), count * held, 0.0, False, cost.snapshot_s, cost.restore_s,
            phases=tuple(profiles.Phase(f"{turn}", held) for turn in range(count)) if count > 1 else (),
        )
        for n, (count, away, held, cost) in enumerate(steps)
    ]  # fmt: skip
    single = [profile((Workload("w", away, held), cost)) for _, away, held, cost in steps]

    several, one = predict.rehearse(group), predict.rehearse(single)
    assert several.slowdowns == pytest.approx(one.slowdowns)
    assert (several.duty, several.switch_share) == pytest.approx((one.duty, one.switch_share))


def _asks_before(work: Workload) -> float:
    """Return how long before the end of its first step a job asks for the first time."""
    return 0.0 if work.staleness else work.held_s


@pytest.mark.parametrize("train_s", [150.0, 180.0])
def test_a_rehearsal_varies_as_jobs_do_that_chance_keeps_from_falling_into_step(train_s: float) -> None:
    job = (Workload("w", 200, train_s), Cost(1, 1))

    turns = run([job, job], spread=0.3, steps=600).turns
    forecast = predict.rehearse([profile(job, 0.3)] * 2, turns=4000)

    passed = min(max(turn.yielded for turn in turns if turn.job == name) for name in ("job-0", "job-1"))
    paces = [
        passed / sum(t.job == name and t.yielded <= passed for t in turns) for name in ("job-0", "job-1")
    ]
    seen = sum(paces) / 2 / job[0].period_s
    assert seen > 1.08
    assert sum(forecast.slowdowns) / 2 == pytest.approx(seen, abs=0.02)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(50, 900), st.floats(0.05, 0.9), st.booleans()), min_size=2, max_size=4))
def test_a_rehearsal_ends_early_only_where_one_is_slowed_down_too_much(
    works: list[tuple[float, float, bool]],
) -> None:
    group = [
        Profile(f"w{n}", period_s, share * period_s, 0.05, buffered, 1, 1)
        for n, (period_s, share, buffered) in enumerate(works)
    ]
    whole = predict.rehearse(group)

    assert predict.rehearse(group, [1e6] * len(group)) == whole
    brief = predict.rehearse(group, [1.1] * len(group))
    assert brief == whole or max(brief.slowdowns) > 1.1
    if sum(share for _, share, _ in works) > 1.5:
        assert min(max(brief.slowdowns), max(whole.slowdowns)) > 1.1
