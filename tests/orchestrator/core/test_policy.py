"""In which order waiters come."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.core import Core
from slurm_interleave.orchestrator.core.policy import POLICIES, FairShare
from slurm_interleave.orchestrator.core.rules import Rules
from tests.orchestrator.core.bench import Bench, granted, report
from tests.orchestrator.core.turns import Turns, jobs


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


def test_by_fair_share_all_that_an_account_held_adds_up_and_fades() -> None:
    policy = FairShare(half_life_s=100)

    def order() -> str:
        return "".join(sorted("xyz-", key=policy.weight))

    policy.held("x", 60, 0)
    policy.held("y", 50, 0)
    policy.held("z", 0, 0)
    assert order() in ("z-yx", "-zyx")
    policy.held("y", 50, 0)
    assert order() in ("z-xy", "-zxy")
    policy.held("z", 20, 200)  # by then 15 of the 60 are left, and 25 of the 100
    assert order() == "-xzy"
    policy.held("x", 12, 300)  # 7.5 and 12, beside 10 and 12.5
    assert order() == "-zyx"


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
        for name in data.draw(st.lists(st.sampled_from(names), unique=True)):
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
