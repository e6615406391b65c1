"""Outages, deadlines and what the job's log says of them."""

from __future__ import annotations

import contextlib
import math
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from slurm_interleave.client import Interleaver, NotRegistered
from slurm_interleave.client import waiting as waiting_module
from slurm_interleave.client.core.errors import BadArgument, InterleaveError
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from tests.client.fakes import FakeOrchestrator, queued, refusal

Code = grpc.StatusCode


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line.removeprefix("[interleave] ") for line in capsys.readouterr().err.splitlines()]


def test_a_grant_at_once_says_nothing(mine: Interleaver, capsys: pytest.CaptureFixture[str]) -> None:
    mine.acquire("train")
    mine.yield_()

    assert lines(capsys) == []


def test_the_log_says_that_it_waits_and_the_grant(
    mine: Interleaver, orchestrator: FakeOrchestrator, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(_context: Any) -> Iterator[pb.AcquireUpdate]:
        yield from [
            queued(2, expected_s=35.4),
            queued(1),
            queued(1),
            queued(0, "device state is being moved"),
        ]
        yield orchestrator.granted(context_restored=True, waited_s=1.5)

    orchestrator.acquires.put(answer)

    lease = mine.acquire("train")

    assert (lease.waited_s, lease.context_restored) == (1.5, True)
    waiting, granted = lines(capsys)
    assert waiting == "waiting for the devices of group demo: 2 ahead, about 35 s"
    assert granted.startswith("granted for phase train after 0.")
    assert granted.endswith("s, device state restored")


def test_a_timeout_is_raised_in_time(mine: Interleaver, orchestrator: FakeOrchestrator) -> None:
    left = threading.Event()

    def answer(context: Any) -> Iterator[pb.AcquireUpdate]:
        context.add_callback(left.set)
        yield queued(1)
        left.wait(10)

    orchestrator.acquires.put(answer)
    began = time.monotonic()

    with pytest.raises(TimeoutError, match=r"devices of group demo were not granted within 0\.2 s"):
        mine.acquire(timeout=0.2)

    assert 0.2 <= time.monotonic() - began < 1.0
    assert left.wait(10), "the orchestrator has heard that nobody waits"
    assert mine.lease is None


def test_a_job_waits_as_long_as_it_was_submitted_to_unless_the_call_says_otherwise(
    environ: dict[str, str], orchestrator: FakeOrchestrator
) -> None:
    with contextlib.closing(Interleaver.from_env({**environ, "INTERLEAVE_MAX_WAIT": "0.3"})) as mine:
        orchestrator.stop()
        with pytest.raises(TimeoutError, match=r"within 0\.3 s"):
            mine.acquire()
        with pytest.raises(TimeoutError, match=r"within 0\.1 s"), mine.turn(timeout=0.1):
            pass


def test_a_call_may_wait_without_the_limit_of_its_job(
    environ: dict[str, str], orchestrator: FakeOrchestrator
) -> None:
    with contextlib.closing(Interleaver.from_env({**environ, "INTERLEAVE_MAX_WAIT": "0"})) as mine:
        assert mine.acquire(timeout=math.inf).epoch == 1


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "1:00"])
def test_a_longest_wait_that_is_no_number_of_seconds_is_refused(environ: dict[str, str], text: str) -> None:
    with pytest.raises(BadArgument, match="INTERLEAVE_MAX_WAIT"):
        Interleaver.from_env({**environ, "INTERLEAVE_MAX_WAIT": text})


def test_a_timeout_counts_through_an_outage(mine: Interleaver, orchestrator: FakeOrchestrator) -> None:
    orchestrator.stop()
    began = time.monotonic()

    with pytest.raises(TimeoutError):
        mine.acquire(timeout=0.3)

    assert 0.3 <= time.monotonic() - began < 0.8


def test_an_orchestrator_that_is_down_is_waited_for_and_the_log_says_so_once(
    mine: Interleaver, orchestrator: FakeOrchestrator, capsys: pytest.CaptureFixture[str]
) -> None:
    orchestrator.stop()
    waiting = threading.Thread(target=mine.acquire)
    waiting.start()
    said = _until_said(capsys, "cannot be reached")

    orchestrator.start()
    waiting.join(15)

    assert mine.lease is not None
    assert said == (
        f"[interleave] the orchestrator at {orchestrator.address} cannot be reached; "
        "waiting, and trying again"
    )
    assert [line[:14] for line in lines(capsys)] == ["granted after "]


def _until_said(capsys: pytest.CaptureFixture[str], text: str) -> str:
    said, limit = "", time.monotonic() + 10
    while text not in said:
        said += capsys.readouterr().err
        assert time.monotonic() < limit
        time.sleep(0.01)
    return said.strip()


def test_an_acquire_goes_on_after_a_restart_in_the_middle(
    mine: Interleaver, orchestrator: FakeOrchestrator
) -> None:
    orchestrator.acquires.put(_cut)
    orchestrator.acquires.put(refusal(Code.UNAVAILABLE, "Socket closed"))
    orchestrator.acquires.put(refusal(Code.CANCELLED, "the server stops"))

    assert mine.acquire("train", timeout=10).epoch == 1

    assert [asked.phase for asked in orchestrator.asked] == ["train"] * 4


def _cut(context: Any) -> Iterator[pb.AcquireUpdate]:
    yield queued(3)
    context.abort(Code.UNAVAILABLE, "Connection reset by peer")


def test_a_grant_whose_stream_breaks_is_asked_for_again(
    mine: Interleaver, orchestrator: FakeOrchestrator
) -> None:
    def answer(context: Any) -> Iterator[pb.AcquireUpdate]:
        yield orchestrator.granted()
        context.abort(Code.UNAVAILABLE, "Connection reset by peer")

    orchestrator.acquires.put(answer)

    assert mine.acquire(timeout=10).epoch == 2


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (Code.UNAUTHENTICATED, "NotAuthenticated"),
        (Code.NOT_FOUND, "NotRegistered"),
        (Code.NOT_FOUND, "UnknownGroup"),  # of a node of the job that is not registered yet
    ],
)
def test_a_job_that_is_not_known_yet_asks_again(
    mine: Interleaver,
    orchestrator: FakeOrchestrator,
    capsys: pytest.CaptureFixture[str],
    code: grpc.StatusCode,
    name: str,
) -> None:
    orchestrator.acquires.put(refusal(code, "not known", name))

    assert mine.acquire(timeout=10).epoch == 1

    first, _granted = lines(capsys)
    assert first == "the orchestrator does not know this job, or its group, yet; waiting, and trying again"


def test_a_job_that_stays_unknown_is_refused_after_the_grace(
    mine: Interleaver, orchestrator: FakeOrchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_module, "_REGISTRATION_GRACE_S", 0.2)
    for _ in range(20):
        orchestrator.acquires.put(refusal(Code.NOT_FOUND, "job 17 is not registered", "NotRegistered"))

    with pytest.raises(NotRegistered, match="job 17 is not registered"):
        mine.acquire(timeout=10)

    assert len(orchestrator.asked) > 1


def test_the_grace_begins_anew_after_an_outage(
    mine: Interleaver, orchestrator: FakeOrchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_module, "_REGISTRATION_GRACE_S", 0.1)
    for _ in range(4):
        orchestrator.acquires.put(refusal(Code.UNAVAILABLE, "Connection refused"))
    orchestrator.acquires.put(refusal(Code.UNAUTHENTICATED, "token not known", "NotAuthenticated"))

    assert mine.acquire(timeout=10).epoch == 1


def test_an_error_of_the_orchestrator_is_raised_with_its_text(
    mine: Interleaver, orchestrator: FakeOrchestrator
) -> None:
    orchestrator.acquires.put(refusal(Code.INTERNAL, "it broke"))

    with pytest.raises(InterleaveError, match=r"answered INTERNAL: it broke"):
        mine.acquire()


def test_an_interrupt_ends_an_acquire(mine: Interleaver, orchestrator: FakeOrchestrator) -> None:
    asked, gone = threading.Event(), threading.Event()

    def answer(context: Any) -> Iterator[pb.AcquireUpdate]:
        context.add_callback(gone.set)
        asked.set()
        yield queued(1)
        gone.wait(10)

    orchestrator.acquires.put(answer)
    script = (
        "from slurm_interleave.client import Interleaver\n"
        "try: Interleaver.from_env().acquire()\n"
        "except KeyboardInterrupt: print('interrupted')"
    )
    member = mine._session.member  # type: ignore[union-attr]
    environ = {
        "INTERLEAVE_JOB_ID": member.job_id,
        "INTERLEAVE_GROUP": member.group,
        "INTERLEAVE_ORCHESTRATOR": member.address,
        "INTERLEAVE_TOKEN": member.token,
    }

    argv = [sys.executable, "-c", script]
    with subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert asked.wait(20)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)

    assert said == "interrupted\n"
    assert gone.wait(10)


def test_an_interrupt_never_breaks_a_call_in_its_beginning() -> None:
    """gRPC would wait at the end of the process for what it has begun and nobody ends."""
    script = (
        "import os, signal, threading\n"
        "from slurm_interleave.client.ask import begun\n"
        "whole = threading.Event()\n"
        "def call():\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    for _ in range(100_000): pass\n"
        "    whole.set()\n"
        "try: begun(call)\n"
        "except KeyboardInterrupt: print('interrupted', whole.wait(10))"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.stdout == "interrupted True\n", done.stderr
