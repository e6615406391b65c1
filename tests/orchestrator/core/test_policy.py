"""In which order waiters come; and what is saved before anybody asks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.client.core.states import Context
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.core import Core
from slurm_interleave.orchestrator.core.policy import POLICIES, Learned
from slurm_interleave.orchestrator.core.rules import Rules
from slurm_interleave.sql.rows import Key
from tests.orchestrator.core.bench import Bench, granted, report
from tests.orchestrator.core.turns import Turns


def jobs(rules: Rules, *names: str) -> Turns:
    bench = Turns(rules)
    for name in names:
        bench.join(name, account=f"account-{name}")
    bench.acquire(names[0])
    return bench


def next_after(bench: Turns, holder: str) -> str:
    """Let *holder* yield and return who holds then."""
    bench.now += 1
    bench.yield_(holder)
    bench.settle()
    ((job, _),) = bench.holders()
    return job


def test_by_priority_the_higher_one_goes_first() -> None:
    bench = jobs(Rules(policy="priority"), "A", "low", "high")
    bench.handle(ev.Weigh(bench.now, "low", 1))
    bench.handle(ev.Weigh(bench.now, "high", 9))
    bench.acquire("low")
    bench.acquire("high")

    assert next_after(bench, "A") == "high"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_switch_is_for_whom_it_began(policy: str) -> None:
    """A job that comes back while its state is moved off does not take the turn, whatever its weight."""
    bench = jobs(Rules(policy=policy, linger_s=0), "A", "B")
    bench.handle(ev.Weigh(bench.now, "A", 9))
    bench.now += 1
    bench.acquire("B")
    bench.yield_("A")
    bench.acquire("A")
    bench.settle()

    assert bench.holders() == {("B", "g")}


def test_a_new_weight_counts_at_once_for_who_is_first() -> None:
    """The first one cannot be granted, so a weight that makes another the first grants that one."""
    bench = Bench()
    bench.core = Core(bench.memory.remembered(), 1, Rules(policy="priority"))
    bench.node_up("n1")
    bench.tell(ev.Registered(bench.at, "n1", report("wide", nodes=("n1", "n2"), priority=5)))
    bench.start("A")
    assert granted(bench.acquire("wide")) == granted(bench.acquire("A")) == []

    assert granted(bench.tell(ev.Weigh(bench.at, "A", 9))) == ["A"]


def test_the_weight_that_a_registration_says_counts() -> None:
    bench = jobs(Rules(policy="priority"), "A")
    bench.join("low")
    bench.join("high", priority=3)
    bench.acquire("low")
    bench.acquire("high")

    assert next_after(bench, "A") == "high"


def test_the_weight_that_a_registration_in_another_group_says_counts_for_who_waits_already() -> None:
    bench = jobs(Rules(policy="priority"), "A", "first", "later")
    bench.acquire("first")
    bench.acquire("later")

    bench.join("later", "h", devices=(1,), priority=3)

    assert next_after(bench, "A") == "later"


def test_a_weight_ends_with_its_job_and_one_of_a_stranger_is_not_kept() -> None:
    bench = Bench()
    bench.start("A")
    bench.tell(ev.Weigh(bench.at, "A", 9))
    bench.tell(ev.Weigh(bench.at, "stranger", 9))
    bench.part_over("A")

    assert bench.core.state.priorities == {}


def test_an_account_that_the_agent_did_not_know_is_taken_from_slurm_and_kept() -> None:
    bench = Bench()
    bench.start("A")
    bench.tell(ev.Registered(bench.at, "n1", report("B", account="known")))
    for job in ("A", "B"):
        bench.tell(ev.Weigh(bench.at, job, 9, "slurms"))
    bench.restart()

    accounts = {key.job_id: member.account for key, member in bench.core.state.members.items()}
    assert accounts == {"A": "slurms", "B": "known"}


def test_by_fair_share_the_account_that_held_less_goes_first() -> None:
    bench = jobs(Rules(policy="fair-share"), "A", "B")
    bench.now += 100
    bench.acquire("B")
    assert next_after(bench, "A") == "B"
    bench.join("C", account="account-A")
    bench.join("D", account="account-D")
    bench.acquire("C")
    bench.acquire("D")

    assert next_after(bench, "B") == "D"


def burst_of(bench: Turns, rounds: int) -> None:
    """Let A take turns with 1 s between them, alone, so that its habit is known."""
    for _ in range(rounds):
        bench.now += 1
        bench.yield_("A")
        bench.now += 1
        bench.acquire("A")


def test_least_switching_waits_a_moment_for_the_last_holder() -> None:
    bench = jobs(Rules(policy="least-switching"), "A", "B")
    burst_of(bench, 3)
    bench.acquire("B")
    bench.yield_("A")
    assert not bench.operations

    bench.now += 0.9
    bench.acquire("A")

    assert bench.holders() == {("A", "g")}


def test_least_switching_goes_on_when_the_last_holder_does_not_come_back_in_time() -> None:
    bench = jobs(Rules(policy="least-switching"), "A", "B")
    burst_of(bench, 3)
    bench.acquire("B")
    bench.yield_("A")

    bench.wake(bench.now + 1)
    bench.settle()

    assert bench.holders() == {("B", "g")}


def test_least_switching_does_not_let_a_burst_go_on_past_the_ageing_time() -> None:
    bench = jobs(Rules(policy="least-switching", ageing_s=5), "A", "B")
    burst_of(bench, 3)
    bench.acquire("B")

    burst_of(bench, 5)
    bench.settle()

    assert ("B", "g") in bench.holders() or bench.core.state.waiters[Key("A", "g")]


def costly(*names: str) -> Turns:
    """Jobs whose contexts take 4 s each way, as the core has seen; the last one holds."""
    bench = Turns(Rules(policy="learned"))
    bench.move_s = 4.0
    for name in names:
        bench.join(name)
    for name in (*names, *names):
        bench.now += 100
        bench.acquire(name)
        bench.settle()
        bench.now += 1
        bench.yield_(name)
        bench.settle()
    bench.acquire(names[-1])
    bench.settle()
    return bench


def come_back_after(bench: Turns, away_s: float) -> None:
    """Let the holder B show that it stays away for *away_s*, and let A ask."""
    for _ in range(6):
        bench.now += 10
        bench.yield_("B")
        bench.now += away_s
        bench.acquire("B")
        bench.settle()
    bench.acquire("A")


@pytest.mark.parametrize(("away_s", "waited_for"), [(1.0, True), (7.0, True), (9.0, False)])
def test_learned_waits_for_a_job_that_is_away_for_less_than_the_switch_takes(
    away_s: float, waited_for: bool
) -> None:
    bench = costly("A", "B")
    come_back_after(bench, away_s)
    bench.now += 10

    bench.yield_("B")

    assert (not bench.operations) == waited_for


def test_learned_gives_the_job_that_it_waited_for_its_turn() -> None:
    bench = costly("A", "B")
    come_back_after(bench, 1.0)
    bench.now += 10
    bench.yield_("B")
    bench.now += 1.1

    bench.acquire("B")

    assert bench.holders() == {("B", "g")}


def test_learned_lets_nobody_be_passed_for_longer_than_the_switch_is_worth() -> None:
    bench = costly("A", "B")
    come_back_after(bench, 1.0)
    bench.now += Learned.AHEAD * 8 + 1

    bench.yield_("B")

    assert [order.job_id for order in bench.operations] == ["B", "A"]


def pauses(bench: Turns, every_s: float, count: int) -> list[str]:
    """Let B come to safe points, where it gives way; return who holds after each."""
    held = []
    for _ in range(count):
        bench.now += every_s
        bench.yield_("B", pause=True)
        bench.acquire("B")
        bench.settle()
        held += [job for job, _ in bench.holders()]
    return held


def test_learned_switches_at_a_safe_point_once_the_wait_was_worth_it() -> None:
    bench = costly("A", "B")
    bench.acquire("A")

    assert pauses(bench, 10, 9) == ["B"] * 9  # no switch costs more than a twelfth of what came before
    assert pauses(bench, 10, 1) == ["A"]


def test_first_come_first_served_switches_at_the_first_safe_point() -> None:
    bench = Turns(Rules(policy="fifo"))
    for name in "AB":
        bench.join(name)
    bench.acquire("B")
    bench.settle()
    bench.acquire("A")

    assert pauses(bench, 10, 1) == ["A"]


def test_a_phase_with_safe_points_is_learned_as_one_and_says_nothing_of_breaks() -> None:
    bench = costly("A", "B")
    key, habits = Key("B", "g"), bench.core.habits
    before = habits.hold(key, "")
    for _ in range(5):
        pauses(bench, 10, 3)
        assert habits.held_before_s(key) == 30
        bench.now += 10
        bench.yield_("B")
        bench.now += 7
        bench.acquire("B")
        bench.settle()

    usual = habits.hold(key, "")
    assert before is not None
    assert usual is not None
    assert (before.usual_s, usual.usual_s) == (1, 40)
    bench.yield_("B")
    assert habits.next_acquire(key, bench.now) == bench.now + 7


@pytest.mark.parametrize("policy", ["learned", "least-switching"])
def test_a_waiter_of_many_devices_is_woken_once_while_it_waits_for_the_last_holder(policy: str) -> None:
    bench = Turns(Rules(policy=policy))
    bench.move_s = 4.0
    for name in "AB":
        bench.join(name, devices=(0, 1, 2, 3))
    for name in "ABAB":
        bench.acquire(name)
        bench.settle()
        bench.now += 50
        bench.yield_(name)
        bench.now += 50
    bench.acquire("B")
    bench.settle()
    come_back_after(bench, 1.0)
    bench.now += 10
    bench.wakes.clear()

    bench.yield_("B")
    for wake in list(bench.wakes):
        bench.handle(replace(wake, at=bench.now))  # early: it waits on

    assert len(bench.wakes) == 1


def test_learned_goes_on_when_the_job_that_it_waits_for_does_not_come() -> None:
    bench = costly("A", "B")
    come_back_after(bench, 1.0)
    bench.yield_("B")

    bench.wake(bench.now + 9)
    bench.settle()

    assert bench.holders() == {("A", "g")}


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=30, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(data=st.data())
def test_no_policy_starves_anybody(policy: str, data: st.DataObject) -> None:
    """Whoever waits is granted within the ageing time and one turn of each waiter that aged before it."""
    ageing, hold = 20.0, 3.0
    names = ["A", "B", "C", "D"]
    bench = Turns(Rules(policy=policy, ageing_s=ageing))
    bench.move_s = data.draw(st.sampled_from((0.1, 2.0, 50.0)))
    bench.look_every = 10
    for name in names:
        bench.join(name, account=data.draw(st.sampled_from(["x", "y"])))
        bench.handle(ev.Weigh(bench.now, name, data.draw(st.integers(0, 3))))
    waiting: dict[str, float] = {}
    for _ in range(60):
        for name in data.draw(st.sets(st.sampled_from(names))):
            if name not in waiting and (name, "g") not in bench.holders():
                waiting[name] = bench.now
                bench.acquire(name)
        bench.settle()
        for job, _ in bench.holders():
            waiting.pop(job, None)
        assert all(bench.now - since <= ageing + hold * (len(names) + 1) for since in waiting.values())
        bench.wake(bench.now + hold)
        bench.settle()
        for job, _ in bench.holders():
            waiting.pop(job, None)
            bench.yield_(job)
        bench.settle()
        for job, _ in bench.holders():
            waiting.pop(job, None)


def test_an_unknown_policy_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ConfigError, match="fifo, priority, fair-share, least-switching"):
        Rules(policy="lottery")


def context_of(bench: Turns, job: str) -> Context:
    return bench.core.state.parts[Key(job, "g")]["n1"].context


def test_with_eager_off_the_context_of_the_last_holder_stays() -> None:
    bench = jobs(Rules(), "A", "B")

    bench.yield_("A")
    bench.settle()

    assert context_of(bench, "A") is Context.RESIDENT


def test_with_eager_always_it_is_saved_at_once() -> None:
    bench = jobs(Rules(eager="always"), "A", "B")

    bench.yield_("A")
    bench.settle()

    assert context_of(bench, "A") is Context.SAVED


def test_a_job_that_comes_back_while_it_is_saved_gets_its_context_again() -> None:
    bench = jobs(Rules(eager="always"), "A", "B")
    bench.yield_("A")

    bench.acquire("A")
    bench.settle()

    assert bench.holders() == {("A", "g")}
    assert context_of(bench, "A") is Context.RESIDENT


def test_learned_lengths_tell_who_will_ask_next() -> None:
    bench = jobs(Rules(eager="learned"), "A", "B")
    for _ in range(4):  # A stays away for 50 s, B for 5 s
        bench.now += 10
        bench.yield_("A")
        bench.acquire("B")
        bench.settle()
        bench.now += 10
        bench.yield_("B")
        bench.settle()
        bench.now += 5
        bench.acquire("B")
        bench.settle()
        bench.now += 10
        bench.yield_("B")
        bench.settle()
        bench.now += 25
        bench.acquire("A")
        bench.settle()
    bench.now += 1
    bench.yield_("A")
    bench.settle()

    assert context_of(bench, "A") is Context.SAVED


def alternate(bench: Turns, *names: str) -> None:
    """Let each of *names* come 2 s after the last one went, and stay for 1 s."""
    for name in names:
        bench.now += 2
        bench.acquire(name)
        bench.settle()
        bench.now += 1
        bench.yield_(name)
        bench.settle()


def jobs_without_turns(rules: Rules, *names: str) -> Turns:
    bench = Turns(rules)
    for name in names:
        bench.join(name)
    return bench


def test_jobs_that_take_turns_are_saved_ahead_once_that_is_known() -> None:
    bench = jobs_without_turns(Rules(eager="learned"), "A", "B")

    alternate(bench, *"ABABA")

    assert context_of(bench, "A") is Context.SAVED


def test_one_long_break_does_not_change_what_is_usual() -> None:
    bench = jobs_without_turns(Rules(eager="learned"), "A", "B")
    alternate(bench, *"ABABABAB")
    bench.now += 10_000
    alternate(bench, *"ABA")

    assert context_of(bench, "A") is Context.SAVED


def test_who_does_not_come_back_any_more_is_not_expected() -> None:
    bench = jobs_without_turns(Rules(eager="learned"), "A", "B")
    alternate(bench, *"ABABAB")

    alternate(bench, *"AAAAAA")

    assert context_of(bench, "A") is Context.RESIDENT


def test_two_contexts_that_fit_together_both_stay_where_the_site_allows_it() -> None:
    bench = jobs(Rules(co_resident=True), "A", "B")
    for holder, waiter in (("A", "B"), ("B", "A"), ("A", "B")):
        bench.acquire(waiter)
        bench.yield_(holder)
        bench.settle(size=40)

    bench.acquire("A")
    bench.yield_("B")

    assert bench.holders() == {("A", "g")}
    assert (context_of(bench, "A"), context_of(bench, "B")) == (Context.RESIDENT, Context.RESIDENT)


def test_two_contexts_that_do_not_fit_together_are_switched() -> None:
    bench = jobs(Rules(co_resident=True), "A", "B")
    for holder, waiter in (("A", "B"), ("B", "A"), ("A", "B")):
        bench.acquire(waiter)
        bench.yield_(holder)
        bench.settle(size=60)

    assert (context_of(bench, "A"), context_of(bench, "B")) == (Context.SAVED, Context.RESIDENT)
