"""What a holder is told of those who wait, and what it does then."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from slurm_interleave.client import Interleaver, Notice, Unreachable, notices
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from tests.client.fakes import FakeOrchestrator, queued, refusal


def heard_by(mine: Interleaver) -> threading.Event:
    """Return what is set at the next notice, when `should_yield` knows it."""
    heard = threading.Event()
    mine.on_notice(lambda _: heard.set())
    return heard


def test_nobody_waits_until_it_is_told(mine: Interleaver, orchestrator: FakeOrchestrator) -> None:
    assert not mine.should_yield
    mine.acquire("train")
    assert not mine.should_yield
    assert not mine.yield_if_wanted()
    heard = heard_by(mine)

    orchestrator.notices.put(pb.HolderNotice(waiting=2, by=500.0))

    assert heard.wait(10)
    assert mine.should_yield
    assert mine.notices() == [Notice("demo", 2, 500.0)]


def test_what_is_told_in_the_moment_when_the_first_question_is_asked_counts(
    mine: Interleaver, orchestrator: FakeOrchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ahead(threading.Thread):
        """A thread that has heard what there is before the one that started it goes on."""

        def start(self) -> None:
            super().start()
            assert self._target.__self__._first.wait(10)  # type: ignore[attr-defined]

    monkeypatch.setattr(notices, "threading", SimpleNamespace(**{**vars(threading), "Thread": Ahead}))
    orchestrator.first_notice = pb.HolderNotice(waiting=1)
    mine.acquire()

    assert mine.should_yield


def test_at_a_safe_point_it_gives_way_and_comes_back_in_its_phase(
    mine: Interleaver, orchestrator: FakeOrchestrator
) -> None:
    heard = heard_by(mine)
    with mine.turn("train"):
        orchestrator.notices.put(pb.HolderNotice(waiting=1))
        assert heard.wait(10)

        assert mine.yield_if_wanted()

        assert orchestrator.yielded == [1]
        assert [asked.phase for asked in orchestrator.asked] == ["train", "train"]
        assert not mine.should_yield, "that was another lease"
    assert (orchestrator.yielded, orchestrator.paused) == ([1, 2], [1])


def test_what_was_told_before_the_grant_was_known_here_counts(
    mine: Interleaver, orchestrator: FakeOrchestrator
) -> None:
    taken, heard = threading.Event(), heard_by(mine)
    mine.acquire()
    mine.yield_()

    def answer(_context: Any) -> Iterator[pb.AcquireUpdate]:
        orchestrator.notices.put(pb.HolderNotice(waiting=1))
        assert taken.wait(10)
        yield orchestrator.granted()

    [notices] = mine._notices.values()
    take = notices._take
    notices._take = lambda *told, **first: (take(*told, **first), taken.set())  # type: ignore[method-assign,assignment,func-returns-value]
    orchestrator.acquires.put(answer)
    mine.acquire()

    assert heard.wait(10)
    assert mine.should_yield


def test_a_stream_of_notices_that_breaks_is_opened_again(
    mine: Interleaver, orchestrator: FakeOrchestrator
) -> None:
    heard = heard_by(mine)
    mine.acquire()
    assert not mine.should_yield
    orchestrator.notices.put(None)
    orchestrator.notices.put(pb.HolderNotice(waiting=1))

    assert heard.wait(10)


def test_a_callback_that_fails_is_told_and_hurts_no_other(
    mine: Interleaver, orchestrator: FakeOrchestrator, capsys: pytest.CaptureFixture[str]
) -> None:
    mine.on_notice(lambda _: 1 / 0)
    heard = heard_by(mine)
    mine.acquire()
    orchestrator.notices.put(pb.HolderNotice(waiting=1))

    assert heard.wait(10)
    assert "a notice was not taken: ZeroDivisionError" in capsys.readouterr().err


def test_a_callback_may_ask_and_yield(mine: Interleaver, orchestrator: FakeOrchestrator) -> None:
    done = threading.Event()

    def give_way(_: Notice) -> None:
        assert mine.should_yield
        mine.yield_()
        done.set()

    mine.on_notice(give_way)
    mine.acquire()
    orchestrator.notices.put(pb.HolderNotice(waiting=1))

    assert done.wait(10)
    assert orchestrator.yielded == [1]
    mine.close()


def test_outside_an_interleaved_job_nobody_ever_waits() -> None:
    outside = Interleaver.from_env({})

    outside.on_notice(lambda _: None)

    assert not outside.should_yield
    assert not outside.yield_if_wanted()
    assert outside.try_acquire() is not None


def test_who_only_tries_gets_free_devices(mine: Interleaver, orchestrator: FakeOrchestrator) -> None:
    lease = mine.try_acquire("eval")

    assert lease is not None
    assert mine.lease == lease
    assert mine.try_acquire() == lease


def test_who_only_tries_waits_for_nobody_and_leaves_the_queue(
    mine: Interleaver, orchestrator: FakeOrchestrator
) -> None:
    gone = threading.Event()

    def answer(context: Any) -> Iterator[pb.AcquireUpdate]:
        context.add_callback(gone.set)
        yield queued(1)
        gone.wait(10)

    orchestrator.acquires.put(answer)

    assert mine.try_acquire() is None
    assert mine.lease is None
    assert orchestrator.heard_yield.wait(10), "it says that it has given up"


def test_who_only_tries_waits_while_its_own_state_is_moved(
    mine: Interleaver, orchestrator: FakeOrchestrator
) -> None:
    def answer(_context: Any) -> Iterator[pb.AcquireUpdate]:
        yield queued(0, "its turn has come, device state is being moved")
        yield orchestrator.granted()

    orchestrator.acquires.put(answer)

    assert mine.try_acquire() is not None


def test_who_only_tries_is_told_that_nobody_can_be_asked(
    mine: Interleaver, orchestrator: FakeOrchestrator
) -> None:
    orchestrator.acquires.put(refusal(grpc.StatusCode.UNAVAILABLE, "Connection refused"))

    with pytest.raises(Unreachable):
        mine.try_acquire()


def test_a_call_that_fails_is_made_again_as_often_as_it_failed(
    mine: Interleaver, orchestrator: FakeOrchestrator
) -> None:
    for _ in range(3):
        orchestrator.soon.put(refusal(grpc.StatusCode.UNAVAILABLE, "Connection refused"))
    orchestrator.acquires.put(refusal(grpc.StatusCode.UNAVAILABLE, "Connection refused"))

    mine.acquire(timeout=20)

    assert orchestrator.calls == {"AcquireSoon": 3 + 1 + 1, "Acquire": 2}
