"""Ranks of one job within this process, each a thread, at the orchestrator for users' own tests."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping

import pytest

from slurm_interleave.client import InterleaveError, JobRanks, testing
from slurm_interleave.client.core.errors import BadArgument, NotRegistered
from slurm_interleave.client.interleaver import Interleaver
from slurm_interleave.client.job_ranks import rank_of
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc


@pytest.fixture
def turns() -> Iterator[testing.Turns]:
    with testing.orchestrator() as serving:
        yield serving


def of(turns: testing.Turns, rank: int, ranks: int = 2, job: str = "1") -> JobRanks:
    return JobRanks(turns.job(job), rank, ranks)


def begun(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("environ", "is_rank"),
    [
        ({}, (0, 1, "ranks")),
        ({"SLURM_PROCID": "0"}, (0, 1, "ranks")),  # a batch script, or what it starts without srun
        ({"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_ID": "1"}, (2, 4, "ranks.1.")),
        (
            {
                "SLURM_PROCID": "2",
                "SLURM_STEP_NUM_TASKS": "4",
                "SLURM_STEP_ID": "1",
                "SLURM_RESTART_COUNT": "3",
            },
            (2, 4, "ranks.1.3"),
        ),
        # torchrun, and mpirun's own daemons, are tasks of srun themselves.
        (
            {"RANK": "5", "WORLD_SIZE": "8", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"},
            (5, 8, "ranks...."),
        ),
        (
            {
                "OMPI_COMM_WORLD_RANK": "5",
                "OMPI_COMM_WORLD_SIZE": "8",
                "SLURM_PROCID": "1",
                "SLURM_STEP_NUM_TASKS": "2",
            },
            (5, 8, "ranks.."),
        ),
    ],
)
def test_who_started_a_process_tells_which_rank_it_is(
    environ: Mapping[str, str], is_rank: tuple[int, int, str]
) -> None:
    assert rank_of(environ) == is_rank


def test_a_rank_that_is_no_number_is_refused_by_its_name() -> None:
    with pytest.raises(BadArgument, match="RANK='first'"):
        rank_of({"RANK": "first", "WORLD_SIZE": "2"})
    with pytest.raises(BadArgument, match="rank 2 of 2"):
        JobRanks(Interleaver.from_env({}), 2, 2)


def test_outside_an_interleaved_job_nobody_waits() -> None:
    ranks = JobRanks.from_env({"RANK": "1", "WORLD_SIZE": "2"})

    ranks.barrier()
    with ranks.turn("train"):
        ranks.close()


def test_a_job_that_nobody_registered_says_so_in_each_rank() -> None:
    ranks = JobRanks(Interleaver.from_env({"INTERLEAVE_GROUP": "demo", "SLURM_JOB_ID": "7"}), 1, 2)

    with pytest.raises(NotRegistered), ranks.turn():
        pass


def test_no_rank_begins_before_the_grant_and_none_is_left_when_the_first_yields(turns: testing.Turns) -> None:
    other, seen = turns.job("other"), []
    other.acquire()
    busy, leave = threading.Event(), threading.Event()

    def work(rank: int) -> None:
        with of(turns, rank).turn("train"):
            seen.append((rank, turns.holder()))
            if rank == 1:
                busy.set()
                leave.wait(10)

    threads = [begun(lambda rank=rank: work(rank)) for rank in (1, 0)]
    turns.until_waiting("1")
    assert seen == []
    other.yield_()
    assert busy.wait(10)
    threads[1].join(0.2)
    assert (turns.holder(), threads[1].is_alive()) == ("1", True)

    leave.set()
    for thread in threads:
        thread.join(10)

    assert sorted(seen) == [(0, "1"), (1, "1")]
    assert turns.holder() == ""


def test_a_turn_within_a_turn_changes_nothing_and_a_decorator_does_the_same(turns: testing.Turns) -> None:
    def work(rank: int) -> None:
        ranks = of(turns, rank)

        @ranks.turn("train")
        def step() -> None:
            with ranks.turn("inner"):
                ranks.barrier()

        step()
        step()

    threads = [begun(lambda rank=rank: work(rank)) for rank in (0, 1)]
    for thread in threads:
        thread.join(10)

    assert [turn.phase for turn in turns.history] == ["train", "train"]


def test_what_the_first_rank_is_not_granted_no_rank_has(turns: testing.Turns) -> None:
    turns.fault("1", "its memory was lost")
    failed: list[str] = []

    def work() -> None:
        try:
            with of(turns, 1).turn("train"):
                failed.append("has worked")
        except InterleaveError as error:
            failed.append(str(error))

    other = begun(work)
    with pytest.raises(InterleaveError, match="job 1 is faulted"), of(turns, 0).turn("train"):
        pass
    other.join(10)

    assert failed == ["rank 1 has no devices: rank 0 failed: job 1 is faulted: its memory was lost"]


def test_a_rank_that_comes_late_to_what_the_first_has_failed_at_goes_on_with_it(turns: testing.Turns) -> None:
    busy, failed, told = threading.Event(), threading.Event(), list[str]()

    def late() -> None:
        ranks = of(turns, 1)
        with contextlib.suppress(InterleaveError), ranks.turn("long"):
            busy.set()
            failed.wait(10)
        for phase in ("second", "third"):
            with pytest.raises(InterleaveError) as why, ranks.turn(phase):
                pass
            told.append(str(why.value))
        with ranks.turn("fourth"):
            told.append("fourth")

    other = begun(late)
    ranks = of(turns, 0)

    def fail(why: str) -> None:
        assert busy.wait(10)
        raise ValueError(why)

    with pytest.raises(ValueError, match="first"), ranks.turn("long"):
        fail("first")
    for why in ("second", "third"):
        with pytest.raises(ValueError, match=why), ranks._telling():
            fail(why)

    def goes_on() -> None:
        with ranks.turn("fourth"):
            told.append("fourth")

    leader = begun(goes_on)
    failed.set()
    for thread in (other, leader):
        thread.join(10)

    assert not other.is_alive()
    assert not leader.is_alive()
    assert told[:2] == [f"rank 1 has no devices: rank 0 failed: {why}" for why in ("second", "third")]
    assert told[2:] == ["fourth", "fourth"]
    assert turns.holder() == ""


def test_an_orchestrator_that_knows_of_no_ranks_yet_is_to_be_upgraded_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rpc, "add_RanksServicer_to_server", lambda *_: None)

    with testing.orchestrator() as older:
        ranks = of(older, 1)
        with pytest.raises(InterleaveError, match=r"the orchestrator at .* of an older .*upgrade it first"):
            ranks.barrier()
