"""Backends that break their promises."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path

import pytest
from typing_extensions import override

from slurm_interleave.client.core.errors import JobFaulted
from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent.backends.noop import NoopBackend
from slurm_interleave.node_agent.backends.protocol import Target, in_thread
from slurm_interleave.node_agent.contexts import JobContext, Outcome, Seen, Verb
from slurm_interleave.node_agent.operations import Operations
from slurm_interleave.node_agent.state import Job, Request, State
from slurm_interleave.node_agent.waits import Stop


class Raises(NoopBackend):
    @override
    async def snapshot(self, target: Target) -> Outcome:
        raise ZeroDivisionError("a bug")


class RaisesOnce(NoopBackend):
    """Runs out of files once, in a snapshot; then it sees what it is told."""

    def __init__(self, seen: Seen | None) -> None:
        super().__init__("n1", 1)
        self.raised = False
        self._seen = seen

    @override
    def look(self, job: str) -> Seen | None:
        return self._seen if self.raised else Seen(Context.RESIDENT)

    @override
    async def snapshot(self, target: Target) -> Outcome:
        if not self.raised:
            self.raised = True
            raise OSError(errno.EMFILE, "too many open files")
        return Outcome(Context.SAVED)


class Hangs(NoopBackend):
    """Hangs for job 17 until told to stop, and only then."""

    @override
    async def snapshot(self, target: Target) -> Outcome:
        if target.job == "17":
            await in_thread(lambda: target.stop.wait(30))
        return Outcome(Context.SAVED)


class HangsForGood(NoopBackend):
    """Hangs for job 17 whatever it is told."""

    def __init__(self) -> None:
        super().__init__("n1", 1)
        self.began = asyncio.Event()
        self.end = threading.Event()

    @override
    async def snapshot(self, target: Target) -> Outcome:
        self.began.set()
        if target.job == "17":
            await in_thread(lambda: self.end.wait(60))
        return Outcome(Context.SAVED)


class Counts(NoopBackend):
    def __init__(self) -> None:
        super().__init__("n1", 1)
        self.snapshots = 0

    @override
    async def snapshot(self, target: Target) -> Outcome:
        self.snapshots += 1
        return Outcome(Context.SAVED, 5)


def operations(folder: Path, backend: NoopBackend, timeout_s: float = 0.05) -> tuple[Operations, State]:
    state = State(folder)
    for name in ("17", "18"):
        request = Request(name, "demo", "", (0,), 0, 0)
        state.jobs[name] = Job(request, "a", "token", context=JobContext(Context.RESIDENT))
    state.save()
    return Operations(state, backend, timeout_s, lambda *_: None, grace_s=0.05), state


async def test_a_backend_that_raises_leaves_the_job_faulted_with_the_reason(tmp_path: Path) -> None:
    moves, state = operations(tmp_path, Raises("n1", 1))

    result = await moves.order("1-1", Verb.SNAPSHOT, "17", "a")

    assert (result.outcome.ok, result.outcome.context) == (False, Context.FAULTED)
    assert "ZeroDivisionError('a bug')" in result.outcome.error
    with pytest.raises(JobFaulted, match="a bug"):
        moves.call(state.jobs["17"], Verb.SNAPSHOT)


async def test_a_backend_that_hangs_faults_its_own_job_alone(tmp_path: Path) -> None:
    moves, _ = operations(tmp_path, Hangs("n1", 1))

    stuck = asyncio.create_task(moves.order("1-1", Verb.SNAPSHOT, "17", "a"))
    other = await moves.order("1-2", Verb.SNAPSHOT, "18", "a")

    assert other.outcome.ok
    assert not stuck.done()
    assert (await stuck).outcome == Outcome(
        Context.FAULTED, error="backend noop gave no answer to snapshot within 0.05 s"
    )


async def test_a_backend_that_is_given_up_is_told_to_stop(tmp_path: Path) -> None:
    told: list[Stop] = []

    class Remembers(Hangs):
        @override
        async def snapshot(self, target: Target) -> Outcome:
            told.append(target.stop)
            return await super().snapshot(target)

    moves, _ = operations(tmp_path, Remembers("n1", 1))

    await moves.order("1-1", Verb.SNAPSHOT, "17", "a")

    assert [stop.is_set() for stop in told] == [True]


async def test_a_backend_that_hangs_for_good_is_given_up_when_its_job_ends(tmp_path: Path) -> None:
    backend = HangsForGood()
    moving, state = operations(tmp_path, backend, timeout_s=600)
    job = state.jobs["17"]
    saving = asyncio.create_task(moving.order("1-1", Verb.SNAPSHOT, "17", "a"))
    await backend.began.wait()

    job.ended = True
    await asyncio.wait_for(moving.discard(job), 30)

    result = await asyncio.wait_for(saving, 30)
    assert result.outcome.error == "backend noop gave no answer to snapshot when it was told to stop"
    assert (await moving.order("1-2", Verb.SNAPSHOT, "18", "a")).outcome.ok
    backend.end.set()


async def test_an_order_for_an_attempt_that_is_over_says_nothing_of_the_next_one(tmp_path: Path) -> None:
    moving, state = operations(tmp_path, Counts())
    first = state.jobs["17"]

    with moving.expecting([("17", first.attempt)]):
        assert moving.reported(first).state is Context.RESTORING
        second = state.jobs["17"] = Job(first.request, "b", "token")
        assert moving.reported(second).state is Context.NONE


async def test_the_seconds_of_an_operation_count_while_it_is_under_way(tmp_path: Path) -> None:
    backend = HangsForGood()
    moving, _ = operations(tmp_path, backend, timeout_s=600)
    saving = asyncio.create_task(moving.order("1-1", Verb.SNAPSHOT, "17", "a"))
    await backend.began.wait()

    first, second = moving.results.seconds("1-1"), moving.results.seconds("1-1")

    assert 0 < first < second
    backend.end.set()
    assert (await saving).seconds >= second - first


async def test_an_order_that_comes_twice_at_once_is_carried_out_once(tmp_path: Path) -> None:
    backend = Counts()
    moves, _ = operations(tmp_path, backend)

    first, second = await asyncio.gather(
        moves.order("1-1", Verb.SNAPSHOT, "17", "a"), moves.order("1-1", Verb.SNAPSHOT, "17", "a")
    )

    assert first is second
    assert backend.snapshots == 1


async def test_what_is_about_to_move_is_on_disk_before_it_does(tmp_path: Path) -> None:
    """Else an application that suspends itself while the agent is killed would be lost, and not saved."""
    seen: list[JobContext] = []

    class Suspends(NoopBackend):
        name, in_app = "app_channel", True

        @override
        async def snapshot(self, target: Target) -> Outcome:
            seen.append(State(tmp_path).jobs[target.job].context)
            return Outcome(Context.SAVED, 5)

    moves, _ = operations(tmp_path, Suspends("n1", 1))

    await moves.order("1-1", Verb.SNAPSHOT, "17", "a")

    assert [(context.state, context.saved_by) for context in seen] == [(Context.SAVING, "app_channel")]


async def test_what_is_known_is_on_disk_when_an_operation_has_ended(tmp_path: Path) -> None:
    moves, _ = operations(tmp_path, Counts())

    await moves.order("1-1", Verb.SNAPSHOT, "17", "a")

    assert State(tmp_path).jobs["17"].context == JobContext(Context.SAVED, 5)


async def test_a_restore_waits_for_the_snapshot_before_it(tmp_path: Path) -> None:
    backend = Counts()
    moves, state = operations(tmp_path, backend)
    state.jobs["18"].context = JobContext(Context.SAVED, 5)

    second = moves.order("1-2", Verb.RESTORE, "18", "a", ["1-1"])
    first, second = await asyncio.gather(moves.order("1-1", Verb.SNAPSHOT, "17", "a"), second)

    assert (first.outcome.context, second.outcome.context) == (Context.SAVED, Context.RESIDENT)


async def test_a_restore_is_not_begun_if_the_snapshot_before_it_failed(tmp_path: Path) -> None:
    moves, state = operations(tmp_path, Raises("n1", 1))
    state.jobs["18"].context = JobContext(Context.SAVED, 5)

    await moves.order("1-1", Verb.SNAPSHOT, "17", "a")
    second = await moves.order("1-2", Verb.RESTORE, "18", "a", ["1-1"])

    assert not second.outcome.ok
    assert second.outcome.context is Context.SAVED
    assert "not begun" in second.outcome.error


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        (Seen(Context.RESIDENT, 5), Context.RESIDENT),
        (Seen(Context.NONE), Context.FAULTED),
        (Seen(Context.SAVING), Context.FAULTED),
        (None, Context.FAULTED),
    ],
)
async def test_after_a_backend_raised_the_state_that_is_seen_counts(
    tmp_path: Path, seen: Seen | None, state: Context
) -> None:
    moves, _ = operations(tmp_path, RaisesOnce(seen))

    failed = await moves.order("1-1", Verb.SNAPSHOT, "17", "a")

    assert (failed.outcome.ok, failed.outcome.context) == (False, state)
    assert "too many open files" in failed.outcome.error


async def test_an_order_that_broke_is_answered_with_the_state_and_can_be_given_again(tmp_path: Path) -> None:
    _, state = operations(tmp_path, Counts())
    broken = [OSError(errno.EMFILE, "too many open files")]

    def mover_of(_job: str, _saved_by: str) -> None:
        if broken:
            raise broken.pop()

    moves = Operations(state, Counts(), 1, mover_of)

    failed = await moves.order("1-1", Verb.SNAPSHOT, "17", "a")
    again = await moves.order("1-1", Verb.SNAPSHOT, "17", "a")

    assert (failed.outcome.ok, failed.outcome.context) == (False, Context.RESIDENT)
    assert "too many open files" in failed.outcome.error
    assert (again.outcome.ok, again.outcome.context) == (True, Context.SAVED)


async def test_a_restore_beside_another_job_is_done_only_where_the_order_allows_it(tmp_path: Path) -> None:
    moves, state = operations(tmp_path, Counts())
    state.jobs["18"].context = JobContext(Context.SAVED, 5)

    refused = await moves.order("1-1", Verb.RESTORE, "18", "a")
    allowed = await moves.order("1-2", Verb.RESTORE, "18", "a", beside=True)

    assert (refused.outcome.ok, refused.outcome.context) == (False, Context.SAVED)
    assert (allowed.outcome.ok, allowed.outcome.context) == (True, Context.RESIDENT)
