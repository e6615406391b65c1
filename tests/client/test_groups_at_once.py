"""A job that takes turns in several groups."""

from __future__ import annotations

import grpc
import pytest

from slurm_interleave.client import Interleaver, StaleLease
from slurm_interleave.client.core.errors import BadName
from tests.client.fakes import FakeOrchestrator, refuse_yield


def test_groups_are_acquired_in_one_call_and_all_are_yielded(
    mine: Interleaver, orchestrator: FakeOrchestrator
) -> None:
    lease = mine.acquire("sync", groups=["trainer", "sampler"])

    [asked] = orchestrator.asked
    assert (asked.group, list(asked.also)) == ("trainer", ["sampler"])
    assert (lease.group, lease.epoch, dict(lease.also)) == ("trainer", 1, {"sampler": 2})
    mine.yield_()
    assert [(group, epoch) for group, epoch, _ in orchestrator.ended] == [("sampler", 2), ("trainer", 1)]
    assert mine.lease is None


def test_a_group_may_be_added_and_given_up_while_another_is_held(
    mine: Interleaver, orchestrator: FakeOrchestrator
) -> None:
    mine.acquire(groups=["trainer"])
    mine.acquire(groups=["trainer", "sampler"])
    assert [(asked.group, list(asked.also)) for asked in orchestrator.asked] == [
        ("trainer", []),
        ("sampler", []),
    ]

    mine.yield_(["sampler"])

    assert mine.lease is not None
    assert mine.lease.group == "trainer"
    mine.yield_()
    first, second = orchestrator.ended
    assert (first[:2], second[:2]) == (("sampler", 2), ("trainer", 1))
    assert first[2] != second[2], "each yield names the acquire that was told of its lease"


def test_a_turn_yields_the_groups_that_it_took_and_no_others(
    mine: Interleaver, orchestrator: FakeOrchestrator
) -> None:
    with mine.turn(groups=["trainer"]):
        with mine.turn(groups=["trainer", "sampler"]):
            pass
        assert [group for group, *_ in orchestrator.ended] == ["sampler"]

    assert [group for group, *_ in orchestrator.ended] == ["sampler", "trainer"]


def test_a_yield_that_fails_keeps_no_other_group_from_being_yielded(
    mine: Interleaver, orchestrator: FakeOrchestrator
) -> None:
    mine.acquire(groups=["trainer", "sampler"])
    orchestrator.yields.put(refuse_yield(grpc.StatusCode.ABORTED, "lease 2 has ended", "StaleLease"))

    with pytest.raises(StaleLease):
        mine.yield_()

    assert [group for group, *_ in orchestrator.ended] == ["trainer"]


def test_a_name_that_no_group_can_have_is_refused_before_anybody_is_asked(
    mine: Interleaver, orchestrator: FakeOrchestrator
) -> None:
    with pytest.raises(BadName):
        mine.acquire(groups=["no good"])

    assert not orchestrator.asked
