"""The orchestrator for users' own tests."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_interleave.client import Interleaver, JobFaulted, StaleLease, testing
from slurm_interleave.client.connect import CHANNEL_OPTIONS


@pytest.fixture
def turns() -> Iterator[testing.Turns]:
    with testing.orchestrator() as serving:
        yield serving


def acquiring(mine: Interleaver, phase: str = "", **how: object) -> threading.Thread:
    thread = threading.Thread(target=mine.acquire, args=(phase,), kwargs=how)
    thread.start()
    return thread


def test_jobs_take_turns_in_the_order_in_which_they_asked(turns: testing.Turns) -> None:
    a, b, c = (turns.job(name) for name in "abc")
    a.acquire("one")
    asking = [acquiring(b, "two")]
    turns.until_waiting("b")
    asking.append(acquiring(c, "three"))
    turns.until_waiting("b", "c")
    assert turns.holder() == "a"

    for mine, thread in zip((a, b), asking, strict=True):
        mine.yield_()
        thread.join(10)

    assert turns.history == [("a", "demo", "one"), ("b", "demo", "two"), ("c", "demo", "three")]
    assert turns.holder() == "c"


def test_a_wait_that_lasts_longer_than_the_patience_of_one_call_keeps_its_place(
    turns: testing.Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurm_interleave.client.session._PATIENCE_S", 0.05)
    a, b = turns.job("a"), turns.job("b")
    a.acquire()
    thread = acquiring(b)
    turns.until_waiting("b")
    thread.join(0.2)

    assert turns.waiting() == ["b"]
    a.yield_()
    thread.join(10)
    assert turns.holder() == "b"


def test_who_gives_up_leaves_the_queue(turns: testing.Turns) -> None:
    a, b = turns.job("a"), turns.job("b")
    a.acquire()

    with pytest.raises(TimeoutError):
        b.acquire(timeout=0.2)

    assert turns.waiting() == []
    assert b.try_acquire() is None
    a.yield_()
    assert b.try_acquire() is not None


def test_two_processes_of_a_job_are_granted_together(turns: testing.Turns) -> None:
    a, first, second = turns.job("a"), turns.job("b"), turns.job("b")
    a.acquire()
    both = [acquiring(first), acquiring(second)]
    turns.until_waiting("b")

    a.yield_()
    for thread in both:
        thread.join(10)

    assert first.lease is not None
    assert second.lease is not None
    assert first.lease.epoch == second.lease.epoch


def test_a_holder_hears_that_somebody_waits_and_gives_way(turns: testing.Turns) -> None:
    a, b = turns.job("a"), turns.job("b")
    heard = threading.Event()
    a.acquire("long")
    assert not a.should_yield
    a.on_notice(lambda notice: heard.set() if notice.by else None)
    thread = acquiring(b, "short")
    turns.until_waiting("b")
    turns.ask_to_yield(by=time.time() + 30)
    assert heard.wait(10)
    assert a.should_yield
    giving_way = threading.Thread(target=a.yield_if_wanted)
    giving_way.start()
    thread.join(10)
    turns.until_waiting("a")
    b.yield_()
    giving_way.join(10)

    assert [turn.phase for turn in turns.history] == ["long", "short", "long"]


def test_a_lease_can_be_taken_back_and_a_job_faulted(turns: testing.Turns) -> None:
    a = turns.job("a")
    a.acquire()
    turns.revoke()
    with pytest.raises(StaleLease):
        a.yield_()

    turns.fault("a", "the driver crashed")
    with pytest.raises(JobFaulted, match="the driver crashed"):
        a.acquire()


def test_several_groups_are_granted_at_once(turns: testing.Turns) -> None:
    a, both = turns.job("a", "sampler"), turns.job("b", "trainer")
    a.acquire()
    thread = acquiring(both, groups=["trainer", "sampler"])
    turns.until_waiting("b", group="sampler")
    assert turns.holder("trainer") == ""

    a.yield_()
    thread.join(10)

    assert (turns.holder("trainer"), turns.holder("sampler")) == ("b", "b")
    both.yield_()
    assert (turns.holder("trainer"), turns.holder("sampler")) == ("", "")


def test_a_script_can_be_run_against_it(turns: testing.Turns, tmp_path: Path) -> None:
    script = "from slurm_interleave.client import Interleaver\nwith Interleaver.from_env().turn('here'): pass"

    subprocess.run([sys.executable, "-c", script], env=turns.environ("7"), check=True, timeout=60)

    assert turns.history == [("7", "demo", "here")]


def test_the_example_of_the_documentation_is_true() -> None:
    with testing.orchestrator() as turns:
        mine = turns.job("1")
        other = turns.job("2")
        with mine.turn("train"):
            assert other.try_acquire() is None
        assert turns.history == [("1", "demo", "train")]


def test_it_takes_as_many_pings_as_our_channels_send() -> None:
    allowed = dict(testing._OPTIONS)["grpc.http2.min_ping_interval_without_data_ms"]

    assert dict(CHANNEL_OPTIONS)["grpc.keepalive_time_ms"] >= allowed
