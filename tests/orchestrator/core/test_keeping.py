"""Jobs that keep leases while they wait for more: nobody starves beside them, and no cycle goes unseen."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from slurm_interleave.client.core.errors import Deadlock
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.policy import POLICIES
from slurm_interleave.orchestrator.core.remembered import Remembered
from slurm_interleave.orchestrator.core.rules import Rules
from slurm_interleave.orchestrator.core.state import State
from slurm_interleave.sql.rows import Key
from tests.orchestrator.core.turns import Turns

AGEING_S, HOLD_S = 20.0, 5.0
TRAINER_FOR_A_MINUTE = Rules(max_hold_by_group={"trainer": 60}, yield_grace_s=10, force=True)
Asked = dict[tuple[str, str], float]  # since when a job waits, by job and group


def with_two_groups(*jobs: str, rules: Rules | None = None) -> Turns:
    """Return a bench on which each job is in groups trainer and sampler, of a device each."""
    bench = Turns(rules)
    for job in jobs:
        bench.join(job, "trainer", (0,))
        bench.join(job, "sampler", (1,))
    return bench


@pytest.mark.parametrize("policy", POLICIES)
def test_who_waits_for_the_sampler_alone_is_not_passed_for_ever_by_those_who_keep_a_trainer(
    policy: str,
) -> None:
    bench = Turns(Rules(policy=policy, ageing_s=AGEING_S))
    for job, device in (("A1", 0), ("B1", 0), ("A2", 1), ("B2", 1)):
        bench.join(job, f"t{device}", (device,))
        bench.join(job, "sampler", (2,))
        bench.acquire(job, f"t{device}")
    bench.join("X", "sampler", (2,))
    for job in ("A1", "A2", "X"):
        bench.acquire(job, "sampler")
        bench.settle()

    asked = bench.now
    while ("X", "sampler") not in bench.holders():
        assert bench.now <= asked + AGEING_S + 3 * HOLD_S
        bench.wake(bench.now + HOLD_S)
        [holder] = [job for job, group in bench.holders() if group == "sampler"]
        bench.yield_(holder, "sampler")
        bench.settle()
        bench.acquire(holder, "sampler")
        bench.settle()


def let_the_trainer_be_taken(bench: Turns) -> None:
    """Let the time pass after which a rule takes the trainer from its holder."""
    for seconds in (61, 11):
        bench.wake(bench.now + seconds)
        bench.settle()


def ask_for_what_is_next(bench: Turns, jobs: dict[str, int], asked: Asked, some: list[str]) -> None:
    """Let *some* jobs that do not wait ask: for their trainer, or for the sampler where they have that."""
    for job in some:
        trainer = f"t{jobs[job]}" if job in jobs else "sampler"
        wanted = (job, "sampler" if (job, trainer) in bench.holders() else trainer)
        waits = any((job, group) in asked for group in (trainer, "sampler"))
        if wanted not in bench.holders() and not waits:
            asked[wanted] = bench.now
            bench.acquire(*wanted)
            bench.settle()


def end_turns(bench: Turns, asked: Asked) -> None:
    """End all turns, but those of trainers whose jobs wait for the sampler."""
    for job, group in sorted(bench.holders(), key=lambda held: held[1] != "sampler"):
        if group == "sampler" or (job, "sampler") not in asked:
            bench.yield_(job, group)
            bench.settle()


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=10, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(data=st.data())
def test_no_policy_starves_anybody_beside_jobs_with_leases_that_they_keep(
    policy: str, data: st.DataObject
) -> None:
    jobs = {"A": 0, "B": 0, "C": 1, "D": 1}
    bench = Turns(Rules(policy=policy, ageing_s=AGEING_S))
    bench.look_every = 10
    for job, device in jobs.items():
        bench.join(job, f"t{device}", (device,), account=data.draw(st.sampled_from("xy")))
        bench.handle(ev.Weigh(bench.now, job, data.draw(st.integers(0, 3))))
    for job in (*jobs, "X"):
        bench.join(job, "sampler", (7,))
    asked: Asked = {}
    for _ in range(60):
        some = data.draw(st.lists(st.sampled_from((*jobs, "X")), unique=True))
        ask_for_what_is_next(bench, jobs, asked, some)
        bench.wake(bench.now + HOLD_S)
        bench.settle()
        end_turns(bench, asked)
        for held in set(bench.granted):
            asked.pop(held, None)
        bench.granted.clear()
        # Behind at most four others, each of which may have waited for the sampler with a trainer.
        assert all(bench.now - since <= AGEING_S + HOLD_S * 12 for since in asked.values())


def test_a_cycle_is_found_after_a_rule_has_taken_one_of_two_leases() -> None:
    bench = with_two_groups("A", "B", rules=TRAINER_FOR_A_MINUTE)
    bench.acquire("A", "trainer")
    bench.acquire("A", "sampler")
    bench.acquire("B", "trainer")
    let_the_trainer_be_taken(bench)
    assert bench.holders() == {("B", "trainer"), ("A", "sampler")}

    with pytest.raises(Deadlock, match="job B would wait for ever"):
        bench.acquire("B", "sampler")


def test_who_waits_for_both_passes_no_job_that_keeps_one_and_whose_other_was_taken() -> None:
    bench = with_two_groups("A", "B", rules=TRAINER_FOR_A_MINUTE)
    bench.acquire("A", "trainer")
    bench.acquire("A", "sampler")
    bench.acquire("B", "trainer", "sampler")
    let_the_trainer_be_taken(bench)
    assert bench.holders() == {("A", "trainer"), ("A", "sampler")}

    for group in ("sampler", "trainer"):
        bench.yield_("A", group)
        bench.settle()

    assert bench.holders() == {("B", "trainer"), ("B", "sampler")}


def test_a_cycle_is_found_where_a_job_got_its_first_lease_while_it_waited_for_the_second() -> None:
    bench = with_two_groups("A", "B", "C")
    bench.acquire("C", "trainer")
    bench.acquire("B", "sampler")
    bench.acquire("A", "sampler")
    bench.acquire("A", "trainer")
    bench.yield_("C", "trainer")
    bench.settle()
    assert ("A", "trainer") in bench.holders()

    with pytest.raises(Deadlock, match="job B would wait for ever"):
        bench.acquire("B", "trainer")


def test_a_grant_that_closes_a_cycle_is_told_to_the_waiter_of_its_job() -> None:
    bench = with_two_groups("A", "B", "C")
    bench.acquire("C", "trainer")
    bench.acquire("B", "sampler")
    call = bench.acquire("A", "sampler")
    bench.acquire("A", "trainer")
    bench.acquire("B", "trainer")

    bench.yield_("C", "trainer")
    bench.settle()

    assert isinstance(bench.refused[call], Deadlock)
    bench.yield_("A", "trainer")
    bench.settle()
    assert bench.holders() == {("B", "sampler"), ("B", "trainer")}


def test_with_a_new_lease_a_job_passes_those_who_wait_for_it_in_its_other_queue() -> None:
    bench = with_two_groups("A", "B", "C")
    bench.acquire("C", "trainer")
    bench.acquire("C", "sampler")
    bench.acquire("A", "trainer")
    bench.acquire("B", "trainer", "sampler")
    bench.acquire("A", "sampler")

    bench.yield_("C", "trainer")
    bench.settle()
    bench.yield_("C", "sampler")
    bench.settle()

    assert bench.holders() == {("A", "trainer"), ("A", "sampler")}


@pytest.mark.parametrize("independent", [True, False])
def test_after_a_restart_an_acquire_is_as_independent_as_it_was(independent: bool) -> None:
    bench = with_two_groups("A", "B")
    bench.acquire("A", "trainer")
    bench.acquire("B", "sampler")
    bench.acquire("A", "sampler", independent=independent)
    state = bench.core.state
    parts = [part for parts in state.parts.values() for part in parts.values()]
    after = State(
        Remembered(
            state.epoch,
            members=tuple(state.members.values()),
            parts=tuple(parts),
            waiters=tuple(state.waiters.values()),
            leases=tuple(state.leases.values()),
        )
    )

    assert after.keeping[Key("A", "sampler")] == state.keeping[Key("A", "sampler")]
    assert bool(after.keeping[Key("A", "sampler")]) is not independent


def test_a_grant_that_closes_a_cycle_with_a_lease_that_was_taken_is_told_to_the_other_job() -> None:
    bench = with_two_groups("A", "B", "C")
    bench.acquire("A", "trainer")
    bench.acquire("C", "sampler")
    bench.acquire("B", "trainer")
    bench.handle(ev.Revoke(bench.now, "A", "trainer"))
    bench.settle()
    bench.acquire("A", "sampler")
    call = bench.acquire("B", "sampler")

    bench.yield_("C", "sampler")
    bench.settle()

    assert isinstance(bench.refused[call], Deadlock)
    bench.yield_("B", "trainer")
    bench.settle()
    assert bench.holders() == {("A", "trainer"), ("A", "sampler")}


def test_however_many_pass_the_same_waiter_each_has_a_number_of_its_own() -> None:
    many = 26
    bench = Turns(devices=many + 1)
    for number in range(many):
        bench.join(f"K{number}", "trainer", (number,))
    for job in ("H", "W", *(f"K{number}" for number in range(many))):
        bench.join(job, "sampler", (many,))
    bench.join("W", "trainer", tuple(range(many)))
    bench.acquire("H", "sampler")
    for number in range(many):
        bench.acquire(f"K{number}", "trainer")
    bench.acquire("W", "trainer", "sampler")

    for number in range(many):
        bench.acquire(f"K{number}", "sampler")

    waiters = sorted(bench.core.state.waiters.values(), key=lambda waiter: waiter.seq)
    assert [waiter.job_id for waiter in waiters] == [*(f"K{number}" for number in range(many)), "W"]
    assert len({waiter.seq for waiter in waiters}) == len(waiters)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("order", ["AX", "XA"])
def test_who_has_aged_and_who_keeps_what_others_want_come_in_the_order_in_which_they_asked(
    policy: str, order: str
) -> None:
    bench = with_two_groups("A", "B", "H", rules=Rules(policy=policy, ageing_s=AGEING_S))
    bench.join("X", "sampler", (1,))
    bench.acquire("A", "trainer")
    bench.acquire("H", "sampler")
    bench.acquire("B", "trainer")
    for job in order:
        bench.acquire(job, "sampler")
    bench.wake(bench.now + AGEING_S + 1)

    bench.yield_("H", "sampler")
    bench.settle()

    assert (order[0], "sampler") in bench.holders()
