"""A state_dir that takes nothing: memory is right, and the disk follows when it can."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent.backends.noop import NoopBackend
from slurm_interleave.node_agent.contexts import JobContext, Verb
from slurm_interleave.node_agent.operations import Operations
from slurm_interleave.node_agent.state import Job, Request, State


def full(folder: Path) -> State:
    """Return the state of one job; nothing of it can be written, since both files are folders now."""
    state = State(folder)
    state.jobs["17"] = Job(
        Request("17", "demo", "", (0,), 0, 0), "a", "token", context=JobContext(Context.RESIDENT)
    )
    state.save()
    for name in ("agent.journal", "agent.new"):
        (folder / name).mkdir()
    return state


def free(folder: Path) -> None:
    for name in ("agent.journal", "agent.new"):
        (folder / name).rmdir()


async def test_a_full_disk_fails_no_operation_and_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = full(tmp_path)
    moves = Operations(state, NoopBackend("n1", 1), 5, lambda *_: None)

    with caplog.at_level(logging.ERROR):
        saved = await moves.order("1-1", Verb.SNAPSHOT, "17", "a")
        back = await moves.order("1-2", Verb.RESTORE, "17", "a")
        state.save()

    assert (saved.outcome.context, back.outcome.context) == (Context.SAVED, Context.RESIDENT)
    assert saved.outcome.ok
    assert back.outcome.ok
    assert [record.message for record in caplog.records] == ["state.unwritten"]


async def test_what_could_not_be_written_is_written_with_the_next_save(tmp_path: Path) -> None:
    state = full(tmp_path)
    state.jobs["17"].context = JobContext(Context.SAVED, 5)
    state.save_context(state.jobs["17"])

    free(tmp_path)
    state.save_context(state.jobs["17"])

    assert State(tmp_path).jobs["17"].context == JobContext(Context.SAVED, 5)
