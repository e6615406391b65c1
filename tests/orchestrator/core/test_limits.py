"""How long a lease may last while others wait."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_interleave.client.core.errors import ConfigError, NotTheHolder, StaleLease
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


@pytest.mark.parametrize(
    ("group", "partition", "limit"),
    [
        ("g", "", 60.0),
        ("g", "long", 60.0),
        ("g", "short", 10.0),
        ("mine", "short", 20.0),
        ("free", "short", 0.0),
    ],
)
def test_the_limit_of_a_group_comes_before_its_partition_s_and_that_before_all_others(
    group: str, partition: str, limit: float
) -> None:
    by_group, by_partition = {"mine": 20.0, "free": 0.0}, {"short": 10.0}
    rules = Rules(max_hold_s=60, max_hold_by_group=by_group, max_hold_by_partition=by_partition, force=True)
    bench = Turns(rules)
    bench.join("A", group, partition=partition)
    bench.join("B", group)
    bench.acquire("A", group)
    bench.acquire("B", group)

    bench.wake(bench.now + (limit or 1000) - 1)
    assert bench.holders() == {("A", group)}
    assert not any(notice.by for notice in bench.notices)

    bench.wake(bench.now + 2)
    assert [notice.by > 0 for notice in bench.notices][1:] == ([True] if limit else [])


@pytest.mark.parametrize("value", ["soon", -1, True, float("inf"), float("nan"), None, [5]])
@pytest.mark.parametrize("key", ["max_hold_by_group", "max_hold_by_partition"])
def test_a_limit_that_is_no_time_is_refused_at_the_start(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"\[turns\] {key}: x = .*must be a number of seconds"):
        Rules(**{key: {"x": value}})


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
