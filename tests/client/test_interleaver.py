"""What a job's script does with an `Interleaver`."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import grpc
import pytest

from slurm_interleave.client import Interleaver, JobFaulted, NotRegistered, StaleLease
from slurm_interleave.client.core.errors import BadArgument
from tests.client.fakes import FakeOrchestrator, refusal, refuse_yield

STALE = refuse_yield(grpc.StatusCode.ABORTED, "lease 1 has ended", "StaleLease")


def test_outside_an_interleaved_job_nothing_is_done_and_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    outside = Interleaver.from_env({"SLURM_JOB_ID": "17"})

    assert not outside.active
    for _ in range(2):
        assert outside.acquire("train").epoch == 0
        outside.yield_()
    with Interleaver.from_env({}).turn("train"):
        pass
    outside.close()

    said = capsys.readouterr().err
    assert said == "[interleave] not in an interleaved job: acquire and yield do nothing\n"


@pytest.mark.parametrize(("value", "active"), [("1", False), ("yes", False), ("0", True), ("", True)])
def test_a_user_may_switch_it_off(environ: dict[str, str], value: str, active: bool) -> None:
    assert Interleaver.from_env({**environ, "INTERLEAVE_DISABLE": value}).active is active


@pytest.mark.parametrize("missing", ["INTERLEAVE_TOKEN", "INTERLEAVE_ORCHESTRATOR"])
def test_a_job_that_its_agent_did_not_register_is_told_so_with_the_node(
    environ: dict[str, str], missing: str
) -> None:
    del environ[missing]

    with pytest.raises(NotRegistered, match="job 17 of group demo is not registered on node n1") as caught:
        Interleaver.from_env(environ).acquire()

    assert "systemctl status interleave-agent" in str(caught.value)


def test_the_names_of_slurm_are_taken_where_ours_are_missing() -> None:
    slurm = {"INTERLEAVE_GROUP": "demo", "SLURM_JOB_ID": "18", "SLURMD_NODENAME": "n7"}

    with pytest.raises(NotRegistered, match="job 18 of group demo is not registered on node n7"):
        Interleaver.from_env(slurm).acquire()


def test_acquire_and_yield(mine: Interleaver, orchestrator: FakeOrchestrator) -> None:
    lease = mine.acquire("roll\nout")

    assert lease.epoch == 1
    assert mine.lease == lease
    [asked] = orchestrator.asked
    assert (asked.job_id, asked.group, asked.phase) == ("17", "demo", "roll out")
    assert orchestrator.tokens == {"secret"}
    mine.yield_()
    assert orchestrator.yielded == [1]
    assert mine.lease is None


def test_acquiring_while_holding_keeps_the_lease_and_one_yield_ends_it(
    mine: Interleaver, orchestrator: FakeOrchestrator
) -> None:
    assert mine.acquire() == mine.acquire()

    mine.yield_()
    mine.yield_()

    assert len(orchestrator.asked) == 1
    assert orchestrator.yielded == [1]


def test_a_turn_holds_for_the_body(mine: Interleaver, orchestrator: FakeOrchestrator) -> None:
    with mine.turn("train") as lease:
        assert mine.lease == lease
        assert orchestrator.yielded == []

    assert orchestrator.yielded == [1]


def test_a_turn_as_a_decorator_holds_for_each_call(mine: Interleaver, orchestrator: FakeOrchestrator) -> None:
    @mine.turn("train")
    def step(number: int) -> int:
        assert mine.lease is not None
        return number + 1

    assert [step(1), step(2)] == [2, 3]
    assert orchestrator.yielded == [1, 2]


def test_the_outermost_turn_yields(mine: Interleaver, orchestrator: FakeOrchestrator) -> None:
    with mine.turn("outer"):
        with mine.turn("inner"):
            pass
        assert orchestrator.yielded == []

    assert orchestrator.yielded == [1]


def test_a_turn_after_an_acquire_leaves_the_lease_to_its_owner(
    mine: Interleaver, orchestrator: FakeOrchestrator
) -> None:
    mine.acquire()
    with mine.turn():
        pass
    assert orchestrator.yielded == []

    mine.yield_()
    with mine.turn():
        pass

    assert orchestrator.yielded == [1, 2]


def test_a_turn_may_give_way_in_the_middle(mine: Interleaver, orchestrator: FakeOrchestrator) -> None:
    with mine.turn():
        mine.yield_()
        mine.acquire()
        assert orchestrator.yielded == [1]

    assert orchestrator.yielded == [1, 2]


def test_two_threads_in_a_turn_hold_until_the_last_has_left(
    mine: Interleaver, orchestrator: FakeOrchestrator
) -> None:
    both, first_left, end = threading.Barrier(2), threading.Event(), threading.Event()

    def first() -> None:
        with mine.turn():
            both.wait(10)
        first_left.set()

    def second() -> None:
        with mine.turn():
            both.wait(10)
            assert first_left.wait(10)
            assert mine.lease is not None
            assert orchestrator.yielded == []
        end.set()

    threads = [threading.Thread(target=work) for work in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert end.is_set()
    assert orchestrator.yielded == [1]


def test_an_exception_of_the_body_yields_and_comes_through(
    mine: Interleaver, orchestrator: FakeOrchestrator
) -> None:
    with pytest.raises(ZeroDivisionError), mine.turn():
        _ = 1 / 0

    assert orchestrator.yielded == [1]


def test_an_exception_of_the_body_is_not_replaced_by_one_of_the_yield(
    mine: Interleaver, orchestrator: FakeOrchestrator, capsys: pytest.CaptureFixture[str]
) -> None:
    orchestrator.yields.put(STALE)

    with pytest.raises(ZeroDivisionError), mine.turn():
        _ = 1 / 0

    assert "the yield failed too: lease 1 has ended" in capsys.readouterr().err


def test_a_failing_yield_after_a_good_body_is_raised(
    mine: Interleaver, orchestrator: FakeOrchestrator
) -> None:
    orchestrator.yields.put(STALE)

    with pytest.raises(StaleLease), mine.turn():
        pass


def test_a_failing_yield_inside_an_except_block_is_raised_too(
    mine: Interleaver, orchestrator: FakeOrchestrator
) -> None:
    orchestrator.yields.put(STALE)

    try:
        raise KeyError("an earlier error, dealt with")
    except KeyError:
        with pytest.raises(StaleLease), mine.turn():
            pass


def test_closing_yields(mine: Interleaver, orchestrator: FakeOrchestrator) -> None:
    mine.acquire()

    mine.close()

    assert orchestrator.yielded == [1]
    assert mine.acquire().epoch == 2, "it opens again by itself"


def test_a_faulted_job_is_told_why(mine: Interleaver, orchestrator: FakeOrchestrator) -> None:
    orchestrator.acquires.put(refusal(grpc.StatusCode.FAILED_PRECONDITION, "driver crashed", "JobFaulted"))

    with pytest.raises(JobFaulted, match="driver crashed"):
        mine.acquire()

    assert mine.lease is None


def test_the_client_needs_grpc_and_protobuf_alone() -> None:
    script = (
        "import sys, grpc, google.protobuf; before = set(sys.modules); "
        "from slurm_interleave.client import *; "
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr
    allowed = {*sys.stdlib_module_names, "slurm_interleave", "grpc", "google"}
    assert set(done.stdout.split()) <= allowed


def test_importing_the_client_configures_no_logging_and_starts_no_thread() -> None:
    script = (
        "import logging, threading; from slurm_interleave.client import *; "
        "assert not logging.getLogger().handlers; assert threading.active_count() == 1"
    )

    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_signals_are_the_users(environ: dict[str, str]) -> None:
    numbers = [number for number in signal.valid_signals() if number not in (signal.SIGKILL, signal.SIGSTOP)]
    before = [signal.getsignal(number) for number in numbers], signal.pthread_sigmask(signal.SIG_BLOCK, ())

    mine = Interleaver.from_env(environ)
    mine.on_notice(print)
    with mine.turn("train"):
        during = (
            [signal.getsignal(number) for number in numbers],
            signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        )
    mine.close()

    assert during == before
    assert [signal.getsignal(number) for number in numbers] == before[0]


def test_what_waits_for_the_devices_is_told_of_each_grant(mine: Interleaver) -> None:
    held: list[bool] = []
    mine.on_grant(lambda: held.append(mine.lease is not None))

    for _ in range(2):
        with mine.turn():
            mine.acquire()

    assert held == [True, True]


def test_if_it_fails_the_lease_is_yielded(mine: Interleaver) -> None:
    def fail() -> None:
        raise MemoryError("no room")

    mine.on_grant(fail)

    with pytest.raises(MemoryError, match="no room"):
        mine.acquire()
    assert mine.lease is None


def test_endpoints_of_the_environment_are_told_before_the_first_acquire(environ: dict[str, str]) -> None:
    unusable = Interleaver.from_env({**environ, "INTERLEAVE_ENDPOINTS": "vllm"})
    without_agent = Interleaver.from_env({**environ, "INTERLEAVE_ENDPOINTS": "vllm http://localhost:8000"})

    for _ in range(2):
        with pytest.raises(BadArgument, match="INTERLEAVE_ENDPOINTS='vllm'"):
            unusable.acquire()
    assert without_agent.acquire().epoch > 0
    without_agent.close()
