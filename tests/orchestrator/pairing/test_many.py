"""Among many jobs, too, the choice keeps all rules, and comes near the best where that is known."""

from __future__ import annotations

import random

import pytest

from slurm_interleave.orchestrator.pairing.choice import choose
from slurm_interleave.orchestrator.pairing.profile import Profile
from slurm_interleave.orchestrator.pairing.rating import Candidate, PairingRules, Rater

HALF = Profile("half", 400, 150, 0.02, snapshot_s=1, restore_s=1)
# Who has batches in stock bears that its context takes long to come.
STOCKED = Profile("stocked", 450, 120, 0.02, True, snapshot_s=1, restore_s=80)


def test_jobs_with_little_to_do_share_devices_by_fours() -> None:
    idle = Profile("idle", 400, 10, 0.05, snapshot_s=0.1, restore_s=0.1)

    for count, sizes in ((2, [2]), (3, [3]), (4, [4]), (8, [4, 4])):
        found = choose([Candidate(str(n), idle) for n in range(count)])
        assert sorted(len(group.members) for group in found) == sizes


@pytest.mark.parametrize(("profile", "epsilon"), [(HALF, 0.3), (STOCKED, 0.1)])
def test_of_many_jobs_those_with_as_much_left_are_together(profile: Profile, epsilon: float) -> None:
    dice = random.Random(8)  # noqa: S311 - it decides no secret
    names = [str(number) for number in range(48)]
    dice.shuffle(names)
    pairs = [[Candidate(names.pop(), profile, 2.0 * n, epsilon=epsilon) for _ in "ab"] for n in range(1, 25)]
    jobs = [job for pair in pairs for job in pair]
    dice.shuffle(jobs)
    rater = Rater(PairingRules(members=2))
    best = sum(rater.rate(pair).saved for pair in pairs)
    assert best > 0

    assert sum(group.saved for group in choose(jobs, rater)) == pytest.approx(best, rel=0.01)


def any_job(number: int, dice: random.Random) -> Candidate:
    period_s, share = dice.choice((100, 350, 900)), dice.choice((0.1, 0.2, 0.4, 0.6, 0.95))
    move_s, buffered = dice.choice((0.5, 10)), dice.random() < 0.5
    own = Profile(
        f"{period_s}-{share}-{move_s}-{buffered}", period_s, share * period_s, 0.05, buffered, move_s, move_s
    )
    return Candidate(
        str(number),
        own,
        dice.uniform(1, 24),
        device_type=dice.choice("AB"),
        account=dice.choice(("ml", "art", "physics")),
        epsilon=dice.choice((None, None, 0.02, 0.5)),
    )


@pytest.mark.parametrize("seed", range(4))
def test_every_group_of_many_jobs_is_good_and_trying_pieces_again_makes_it_no_worse(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - it decides no secret
    jobs = [any_job(number, dice) for number in range(90)]
    rules = PairingRules(members=3, may_share=lambda one, other: {one, other} != {"ml", "art"})

    quick, thorough = (choose(jobs, Rater(rules), rounds=rounds) for rounds in (0, 200))

    for found in (quick, thorough):
        names = [member.job_id for group in found for member in group.members]
        assert len(names) == len(set(names))
        for group in found:
            alone = Rater(rules).rate(group.members)
            assert (alone.why, alone.saved) == ("", group.saved)
    assert sum(group.saved for group in thorough) > sum(group.saved for group in quick)
