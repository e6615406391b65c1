"""A yield is never lost: it is sent until it is heard, before anything else."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import grpc
import pytest

from slurm_interleave.client import Interleaver, StaleLease
from tests.client.fakes import FakeOrchestrator, refuse_yield
from tests.client.test_session import lines

Code = grpc.StatusCode


def test_a_yield_while_the_orchestrator_is_away_returns_and_is_delivered_later(
    mine: Interleaver, orchestrator: FakeOrchestrator, capsys: pytest.CaptureFixture[str]
) -> None:
    mine.acquire()
    orchestrator.stop()
    began = time.monotonic()

    mine.yield_()

    assert time.monotonic() - began < 2
    assert lines(capsys) == [
        f"the orchestrator at {orchestrator.address} cannot be reached; the yield is sent when it is back"
    ]
    orchestrator.start()
    assert orchestrator.heard_yield.wait(15)
    assert orchestrator.yielded == [1]


def test_the_next_acquire_waits_until_the_yield_is_delivered(
    mine: Interleaver, orchestrator: FakeOrchestrator
) -> None:
    mine.acquire()
    orchestrator.yields.put(refuse_yield(Code.UNAVAILABLE, "Socket closed"))
    orchestrator.yields.put(refuse_yield(Code.UNAVAILABLE, "Socket closed"))
    mine.yield_()

    mine.acquire()

    assert orchestrator.yielded == [1]
    assert mine.lease is not None
    assert mine.lease.epoch == 2


def test_an_acquire_that_cannot_deliver_the_yield_is_late_in_time(
    mine: Interleaver, orchestrator: FakeOrchestrator
) -> None:
    mine.acquire()
    orchestrator.stop()
    mine.yield_()
    began = time.monotonic()

    with pytest.raises(TimeoutError):
        mine.acquire(timeout=0.3)

    assert time.monotonic() - began < 0.8
    orchestrator.start()


def test_a_yield_whose_answer_is_lost_is_sent_again_with_the_same_epoch(
    mine: Interleaver, orchestrator: FakeOrchestrator
) -> None:
    def lose(context: Any) -> None:
        orchestrator.yielded.append(1)
        context.abort(Code.UNAVAILABLE, "Connection reset by peer")

    mine.acquire()
    orchestrator.yields.put(lose)

    mine.yield_()

    assert orchestrator.heard_yield.wait(15)
    assert orchestrator.yielded == [1, 1]


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (Code.ABORTED, "StaleLease"),
        (Code.NOT_FOUND, "UnknownGroup"),
        (Code.NOT_FOUND, "NotRegistered"),
        (Code.UNAUTHENTICATED, "NotAuthenticated"),
    ],
)
def test_a_lease_that_the_orchestrator_does_not_know_any_more_needs_no_yield(
    mine: Interleaver, orchestrator: FakeOrchestrator, code: grpc.StatusCode, name: str
) -> None:
    mine.acquire()
    orchestrator.yields.put(refuse_yield(Code.UNAVAILABLE, "Socket closed"))
    orchestrator.yields.put(refuse_yield(code, "gone", name))

    mine.yield_()

    assert mine.acquire(timeout=10).epoch == 2
    assert orchestrator.yielded == []


def test_a_lease_that_was_taken_back_is_told_at_the_yield(
    mine: Interleaver, orchestrator: FakeOrchestrator
) -> None:
    mine.acquire()
    orchestrator.yields.put(refuse_yield(Code.ABORTED, "lease 1 has ended", "StaleLease"))

    with pytest.raises(StaleLease):
        mine.yield_()

    assert mine.acquire().epoch == 2


def test_a_process_that_ends_delivers_its_yield_first(
    orchestrator: FakeOrchestrator, environ: dict[str, str]
) -> None:
    orchestrator.yields.put(refuse_yield(Code.UNAVAILABLE, "Socket closed"))
    orchestrator.yields.put(refuse_yield(Code.UNAVAILABLE, "Socket closed"))
    script = (
        "from slurm_interleave.client import Interleaver; i = Interleaver.from_env(); i.acquire(); i.yield_()"
    )

    subprocess.run([sys.executable, "-c", script], env=environ, check=True, timeout=60)

    assert orchestrator.yielded == [1]
