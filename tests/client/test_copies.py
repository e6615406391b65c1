"""Processes that are forked or spawned while their parent takes turns."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
from typing import Any

import pytest

from slurm_interleave.client import Interleaver
from tests.client.fakes import FakeOrchestrator

CHILD = """\
        with mine.turn("child"):
            assert mine.lease.epoch == 2
        assert not mine.should_yield
"""
# In a process of its own: the forked one here would have gRPC's server in it.
FORKING = f"""
import os, sys
from slurm_interleave.client import Interleaver
mine = Interleaver.from_env()
mine.on_notice(lambda notice: None)  # a thread, which a child does not have
with mine.turn("parent"):
    assert not mine.should_yield
    child = os.fork()
    if not child:
        assert mine.lease is None
{CHILD}        sys.stdout.write("child")
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert mine.lease.epoch == 1
sys.stdout.write(" parent")
"""


def test_a_forked_process_has_no_lease_and_takes_turns_of_its_own(
    orchestrator: FakeOrchestrator, environ: dict[str, str]
) -> None:
    script = [sys.executable, "-c", FORKING]
    environ = {**environ, "GRPC_ENABLE_FORK_SUPPORT": "1"}

    done = subprocess.run(script, env=environ, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stdout) == (0, "child parent"), done.stderr
    assert orchestrator.yielded == [2, 1]


def test_the_end_of_a_turn_that_its_parent_entered_yields_nothing(
    orchestrator: FakeOrchestrator, environ: dict[str, str]
) -> None:
    script = FORKING.replace(CHILD, "        mine.leave()\n        mine.yield_()\n")
    environ = {**environ, "GRPC_ENABLE_FORK_SUPPORT": "1"}

    subprocess.run([sys.executable, "-c", script], env=environ, check=True, timeout=60)

    assert orchestrator.yielded == [1]


def test_a_pickled_copy_belongs_to_the_same_job_and_holds_nothing(
    mine: Interleaver, orchestrator: FakeOrchestrator
) -> None:
    mine.acquire("here")

    copy = pickle.loads(pickle.dumps(mine))  # noqa: S301 - our own

    assert copy.lease is None
    assert copy.acquire("there").epoch == 2
    copy.close()
    assert orchestrator.yielded == [2]


def test_outside_of_a_job_a_copy_is_outside_too() -> None:
    assert not pickle.loads(pickle.dumps(Interleaver.from_env({}))).active  # noqa: S301 - our own


def _turn(mine: Interleaver, epochs: Any) -> None:
    with mine.turn("spawned") as lease:
        epochs.put((os.getpid(), lease.epoch))
    mine.close()


@pytest.mark.parametrize("start", ["spawn", "forkserver"])
def test_a_process_that_is_started_afresh_may_be_given_one(
    mine: Interleaver, orchestrator: FakeOrchestrator, start: str
) -> None:
    context = multiprocessing.get_context(start)
    epochs = context.SimpleQueue()  # type: ignore[attr-defined]

    process = context.Process(target=_turn, args=(mine, epochs))  # type: ignore[attr-defined]
    process.start()
    pid, epoch = epochs.get()
    process.join(30)

    assert (pid, epoch) == (process.pid, 1)
    assert orchestrator.yielded == [1]
