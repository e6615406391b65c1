"""What a group is worth, and each thing that keeps jobs apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_interleave.orchestrator.pairing.choice import choose
from slurm_interleave.orchestrator.pairing.profile import Phase, Profile
from slurm_interleave.orchestrator.pairing.rating import Candidate, PairingRules, Rater, in_words

GIB = 2**30
LIGHT = Profile("light", 400, 100, 0.05, snapshot_s=1, restore_s=1, context_bytes=40 * GIB)
A, B, C, D, E = (Candidate(name, LIGHT) for name in "abcde")


def why(*jobs: Candidate, members: int = 4) -> str:
    return Rater(PairingRules(members=members)).rate(jobs).why


def test_devices_of_all_nodes_are_saved_until_the_first_member_ends_by_what_gets_done() -> None:
    wide = replace(LIGHT, nodes=2, devices=4)
    patient = [Candidate(name, wide, hours, epsilon=0.5) for name, hours in (("a", 20.0), ("b", 10.0))]

    made = Rater().rate(patient)

    assert made.forecast is not None
    first, second = made.forecast.slowdowns
    assert 1 < first < 1.5
    assert second > 1.001
    assert made.forecast.gain == pytest.approx(1 / first + 1 / second - 1)
    assert made.saved == pytest.approx(2 * 4 * 10 * second * made.forecast.gain)


@pytest.mark.parametrize(
    ("jobs", "members", "good"),
    [
        ((A,), 4, False),
        ((A, B), 4, True),
        ((A, B, C), 2, False),
        ((A, B, C), 3, True),
        ((A, B, C, D, E), 4, False),
    ],
)
def test_a_group_has_two_members_and_no_more_than_the_site_says(
    jobs: tuple[Candidate, ...], members: int, *, good: bool
) -> None:
    patient = [replace(job, epsilon=3.0, profile=replace(LIGHT, held_s=20)) for job in jobs]

    assert why(*patient, members=members) == (
        "" if good else f"a group has 2 to {members} members, not {len(jobs)}"
    )


def test_nodes_and_devices_of_each_are_compared_and_not_only_their_product() -> None:
    one, other = (replace(LIGHT, nodes=nodes, devices=2 // nodes) for nodes in (1, 2))

    assert "want 1 x 2 and 2 x 1 devices" in why(replace(A, profile=one), replace(B, profile=other))
    assert "want 1 x 1 and 2 x 1 devices" in why(A, replace(B, profile=replace(LIGHT, nodes=2)))


def test_a_job_that_runs_is_with_those_of_its_group_and_those_that_wait() -> None:
    here, there = replace(A, group="g"), replace(B, group="h")

    assert "run in groups g and h already" in why(here, there)
    assert why(here, C) == why(there, C) == why(here, replace(B, group="g")) == ""


@pytest.mark.parametrize(
    ("rooms", "fits"),
    [
        ((0, 0), True),
        ((100, 60), False),
        ((60, 100), False),
        ((0, 60), False),
        ((60, 0), False),
        ((100, 0), True),
        ((80, 80), True),
    ],
)
def test_contexts_of_all_must_fit_where_the_least_is_known_to_be(
    rooms: tuple[int, int], *, fits: bool
) -> None:
    jobs = [replace(job, host_bytes=room * GIB) for job, room in zip((A, B), rooms, strict=True)]

    assert why(*jobs) == ("" if fits else "their contexts take 80 GiB on each node, which has 60 GiB")


def test_a_job_with_batches_in_stock_may_move_its_context_for_longer_than_it_is_away() -> None:
    costly = replace(LIGHT, held_s=350, snapshot_s=40, restore_s=20)

    assert "moving its context takes 60.0 s" in Rater().alone(replace(A, profile=costly))
    assert Rater().alone(replace(A, profile=replace(costly, buffered=True))) == ""


def test_a_context_is_moved_for_each_turn_of_a_step() -> None:
    costly = replace(LIGHT, snapshot_s=70, restore_s=40, phases=(Phase("rollout", 50), Phase("train", 50)))
    thrice = replace(costly, phases=(Phase("micro", 30, times=2.0), Phase("train", 40)))

    assert Rater().alone(replace(A, profile=costly)) == ""
    assert "for 300.0 s of each step, and moving its context takes 330.0 s" in Rater().alone(
        replace(A, profile=thrice)
    )


def test_who_bears_little_is_not_refused_for_what_is_kept_in_reserve() -> None:
    stocked = replace(LIGHT, spread=0.0, buffered=True)

    assert why(*(replace(job, profile=stocked, epsilon=0.01) for job in (A, B))) == ""


def test_who_bears_much_may_be_with_others_that_do_whatever_the_site_says_of_the_rest() -> None:
    busy = [Candidate(name, replace(LIGHT, held_s=240), epsilon=1.0) for name in "ab"]

    assert [len(group.members) for group in choose(busy)] == [2]
    assert choose([replace(job, epsilon=None) for job in busy]) == []


def test_what_is_said_of_a_group_has_the_most_that_any_policy_could_do() -> None:
    assert " of at most 50%, " in in_words(Rater().rate((A, B)))
    patient = [Candidate(name, replace(LIGHT, held_s=300), epsilon=2.0) for name in "ab"]
    assert " of at most 100%, " in in_words(Rater().rate(patient))
