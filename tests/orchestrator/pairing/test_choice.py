"""The choice is the best there is for few jobs, keeps every rule, and says its reasons."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_interleave.orchestrator.pairing.choice import choose, explain
from slurm_interleave.orchestrator.pairing.profile import Profile
from slurm_interleave.orchestrator.pairing.rating import Candidate, PairingRules, Rater, Verdict, in_words

GIB = 2**30
LIGHT = Profile("light", 400, 100, 0.05, snapshot_s=1, restore_s=1, context_bytes=40 * GIB)
profiles = st.builds(
    lambda period, share, buffered, switch: Profile(
        f"p{period:.0f}-{share:.2f}-{buffered}-{switch}",
        period,
        share * period,
        0.05,
        buffered,
        switch,
        switch,
    ),
    st.sampled_from((100.0, 350.0, 900.0)),
    st.sampled_from((0.1, 0.2, 0.4, 0.6, 0.95)),
    st.booleans(),
    st.sampled_from((0.5, 10.0)),
)


@st.composite
def some(draw: st.DrawFn, most: int) -> list[Candidate]:
    return [
        Candidate(str(n), draw(profiles), draw(st.floats(1, 24)), draw(st.sampled_from("AB")))
        for n in range(draw(st.integers(1, most)))
    ]


def brute(jobs: list[Candidate], rater: Rater) -> float:
    """Return the most that any partition of *jobs* saves."""
    if len(jobs) < 2:
        return 0.0
    first, *others = jobs
    best = brute(others, rater)
    for size in range(1, 4):
        for partners in combinations(others, size):
            verdict = rater.rate((first, *partners))
            if verdict.good:
                left = [job for job in others if job not in partners]
                best = max(best, verdict.saved + brute(left, rater))
    return best


@settings(max_examples=25, deadline=None)
@given(some(6))
def test_for_few_jobs_no_other_groups_save_more(jobs: list[Candidate]) -> None:
    found = choose(jobs)

    # A group whose parts may not be is not looked at: a larger group is never easier to bear.
    assert sum(group.saved for group in found) >= 0.999 * brute(jobs, Rater())


@settings(max_examples=10, deadline=None)
@given(some(40))
def test_each_job_is_in_one_group_that_keeps_the_rules(jobs: list[Candidate]) -> None:
    found = choose(jobs, rounds=20)

    names = [member.job_id for group in found for member in group.members]
    assert len(names) == len(set(names))
    for group in found:
        assert 2 <= len(group.members) <= 4
        assert group.forecast is not None
        assert max(group.forecast.slowdowns) <= 1.1
        assert len({member.device_type for member in group.members}) == 1


@settings(max_examples=25, deadline=None)
@given(some(4))
def test_no_group_saves_more_than_its_bound(jobs: list[Candidate]) -> None:
    rater = Rater()
    verdict = rater.rate(jobs)

    assert verdict.saved <= rater.most(jobs) + 1e-9 or not verdict.good


@dataclass
class Counting(Rater):
    """Counts how often it is asked for a bound."""

    bounds: int = 0

    def most(self, members: Sequence[Candidate]) -> float:
        self.bounds += 1
        return super().most(members)


@pytest.mark.parametrize("shares", [(0.02, 0.2), (0.1, 0.6)])
def test_rehearsals_and_bounds_for_each_job_grow_not_with_the_number_of_workloads(
    shares: tuple[float, float],
) -> None:
    for count in (250, 1000):
        dice, rater = random.Random(8), Counting()  # noqa: S311 - it decides no secret
        jobs = [distinct(str(n), dice, shares) for n in range(count)]

        found = choose(jobs, rater)

        # All pairs would be 500 for each of a thousand jobs, and larger groups far more.
        assert rater.rehearsed <= 4 * count + 1_200
        assert rater.bounds <= 120 * count
        assert sum(len(group.members) for group in found) > 0.7 * count


def distinct(job_id: str, dice: random.Random, shares: tuple[float, float]) -> Candidate:
    period_s, buffered = dice.uniform(80, 900), dice.random() < 0.5
    held_s, move_s = period_s * dice.uniform(*shares), dice.choice((0.5, 4))
    own = Profile(f"w{job_id}", period_s, held_s, 0.05, buffered, move_s, move_s)
    return Candidate(job_id, own, dice.uniform(2, 24))


def why(*jobs: Candidate, rules: PairingRules | None = None) -> str:
    return Rater(rules or PairingRules()).rate(jobs).why


A, B = Candidate("a", LIGHT), Candidate("b", LIGHT)


def test_two_light_jobs_are_a_good_pair() -> None:
    assert Rater().rate((A, B)).good


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (replace(B, device_type="H200"), "different devices"),
        (replace(B, profile=replace(LIGHT, devices=2)), "1 x 1 and 1 x 2"),
        (replace(B, profile=replace(LIGHT, held_s=400)), "nothing to share"),
        (replace(B, profile=replace(LIGHT, held_s=100, snapshot_s=200, restore_s=150)), "takes 350.0 s"),
        (replace(B, profile=replace(LIGHT, held_s=360)), "may for 110%"),
        (replace(B, profile=replace(LIGHT, period_s=430, held_s=310)), "times as long"),
        (replace(B, host_bytes=60 * GIB), "80 GiB on each node, which has 60 GiB"),
        (replace(B, profile=replace(LIGHT, period_s=570), epsilon=0.0), "times as long"),
    ],
)
def test_a_pair_that_would_lose_or_break_a_rule_is_refused_in_numbers(other: Candidate, reason: str) -> None:
    assert reason in why(A, other)
    assert choose((A, other)) == []


def test_a_site_may_keep_accounts_apart() -> None:
    rules = PairingRules(may_share=lambda one, other: one == other)

    assert "share no devices" in why(A, replace(B, account="x"), rules=rules)
    assert not why(A, B, rules=rules)


def test_an_explanation_has_the_best_partner_first_and_the_refused_last() -> None:
    busy = Candidate("busy", replace(LIGHT, name="busy", held_s=360))
    long = replace(A, job_id="long", hours=20)
    job = replace(A, job_id="job", hours=10)

    told = explain(job, [busy, B, long, job], Rater())

    assert [_partner(verdict) for verdict in told] == ["long", "b", "busy"]
    assert "saves" in in_words(told[0])
    assert "slowdown" in in_words(told[0])
    assert "no: " in in_words(told[2])


def _partner(verdict: Verdict) -> str:
    return next(member.job_id for member in verdict.members if member.job_id != "job")
