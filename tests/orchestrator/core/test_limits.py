"""How long a lease may last while others wait."""

from __future__ import annotations

import pytest

from slurm_interleave.client.core.errors import NotTheHolder, StaleLease
from slurm_interleave.client.core.states import Context
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.rules import Rules
from slurm_interleave.sql.rows import Key
from tests.orchestrator.core.turns import Turns

LIMITED = Rules(max_hold_s=60, yield_grace_s=10, force=True)


def pair(rules: Rules) -> Turns:
    bench = Turns(rules)
    bench.join("A")
    bench.join("B")
    bench.acquire("A")
    return bench


def test_a_holder_is_told_when_somebody_waits() -> None:
    bench = pair(Rules())

    bench.acquire("B")

    assert [(notice.key.job_id, notice.waiting, notice.by) for notice in bench.notices] == [("A", 1, 0.0)]


def test_a_holder_may_hold_for_ever_while_nobody_waits() -> None:
    bench = pair(LIMITED)

    bench.wake(bench.now + 1000)

    assert bench.holders() == {("A", "g")}
    assert not bench.notices


def test_a_holder_over_its_time_is_asked_to_yield_when_somebody_comes() -> None:
    bench = pair(LIMITED)
    bench.wake(bench.now + 1000)

    bench.acquire("B")

    assert bench.notices[-1].by == bench.now + 10


def test_after_the_grace_the_holder_is_saved_and_queued_again_and_goes_on_later() -> None:
    bench = pair(LIMITED)
    bench.acquire("B")
    bench.wake(bench.now + 60)
    bench.wake(bench.now + 10)
    bench.settle()
    assert bench.holders() == {("B", "g")}
    assert bench.core.state.parts[Key("A", "g")]["n1"].context is Context.SAVED

    bench.yield_("B")
    bench.settle()

    assert bench.holders() == {("A", "g")}


def test_a_job_ends_the_lease_that_it_was_given_back_by_the_epoch_that_it_knows() -> None:
    bench = pair(LIMITED)
    bench.handle(ev.Revoke(bench.now, "A", "g"))
    assert bench.holders() == {("A", "g")}

    bench.handle(ev.Yield(bench.now, "A", "g", 1))

    assert bench.holders() == set()
    bench.handle(ev.Yield(bench.now, "A", "g", 1))


def test_a_job_that_yields_while_its_lease_is_taken_does_not_get_it_back() -> None:
    bench = pair(LIMITED)
    bench.acquire("B")
    bench.handle(ev.Revoke(bench.now, "A", "g"))
    bench.settle()

    bench.handle(ev.Yield(bench.now, "A", "g", 1))
    bench.yield_("B")

    assert bench.holders() == set()


def test_where_the_site_forbids_force_a_holder_is_only_asked() -> None:
    bench = pair(Rules(max_hold_s=60, yield_grace_s=10))
    bench.acquire("B")
    bench.wake(bench.now + 60)
    bench.wake(bench.now + 1000)

    assert bench.holders() == {("A", "g")}
    assert [notice.by for notice in bench.notices if notice.by] == [1070.0]


def test_a_lease_that_ended_in_time_is_not_asked_for() -> None:
    bench = pair(LIMITED)
    bench.yield_("A")
    bench.acquire("A")

    bench.wake(bench.now + 59)
    bench.acquire("B")

    assert not [notice for notice in bench.notices if notice.by]


def test_only_a_lease_can_be_taken_back() -> None:
    bench = pair(Rules())

    with pytest.raises(NotTheHolder):
        bench.handle(ev.Revoke(bench.now, "B", "g"))


def test_an_epoch_that_was_never_held_is_still_stale() -> None:
    bench = pair(LIMITED)
    bench.handle(ev.Revoke(bench.now, "A", "g"))

    with pytest.raises(StaleLease):
        bench.handle(ev.Yield(bench.now, "A", "g", 77))
