"""Jobs of several processes that are saved, with a program that answers as criu does."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from slurm_interleave.node_agent import processes
from slurm_interleave.node_agent.state import Job
from tests.node_agent.saving import ORDER, Slurm, a_tree, children, criu, drains, until

# As the real one's: all stand still.
DUMPS = 'kill -STOP "$3" $(cat /proc/$3/task/$3/children)'


@pytest.fixture
def tree() -> Iterator[subprocess.Popen[bytes]]:
    with a_tree() as process:
        yield process


def standing_still(pids: Sequence[int]) -> list[bool]:
    return [processes.stat_fields(pid)[0] == "T" for pid in pids]


async def test_all_of_them_let_go_of_their_jobs_socket_before_the_dump(
    tmp_path: Path, tree: subprocess.Popen[bytes]
) -> None:
    """criu cannot save a connection, and each rank of torchrun has one."""
    saving, _ = drains(tmp_path, criu(tmp_path, f"cp {tmp_path}/unplugged {tmp_path}/seen; {DUMPS}"))
    pids, unplugged = [tree.pid, *children(tree)], tmp_path / "unplugged"

    @contextlib.asynccontextmanager
    async def unplug(_job: Job, of: Sequence[int]) -> AsyncIterator[None]:
        unplugged.write_text(" ".join(map(str, of)))
        yield
        unplugged.unlink()

    saving.unplugged = unplug
    assert (await saving.save(ORDER)).ok

    assert (tmp_path / "seen").read_text().split() == list(map(str, pids))
    assert not unplugged.exists()


async def test_all_of_them_are_killed_once_the_job_is_requeued(
    tmp_path: Path, tree: subprocess.Popen[bytes]
) -> None:
    [child] = children(tree)
    saving, _ = drains(tmp_path, criu(tmp_path, DUMPS))

    assert (await saving.save(ORDER)).ok

    until(lambda: not processes.variables(child))


async def test_all_of_them_go_on_where_the_dump_is_cancelled_as_it_ends(
    tmp_path: Path, tree: subprocess.Popen[bytes]
) -> None:
    slurm = Slurm()
    saving, job = drains(tmp_path, criu(tmp_path, DUMPS), slurm)
    pids = [tree.pid, *children(tree)]
    stood: list[bool] = []

    @contextlib.asynccontextmanager
    async def unplug(_job: Job, _of: Sequence[int]) -> AsyncIterator[None]:
        yield
        until(lambda: all(standing_still(pids)))
        stood.extend(standing_still(pids))
        saving.cancel(job.job_id)

    saving.unplugged = unplug
    update = await saving.save(ORDER)

    assert stood == [True, True]
    assert (update.ok, update.error) == (False, "cancelled")
    assert (standing_still(pids), slurm.requeued) == ([False, False], [])
    assert list((tmp_path / "images").iterdir()) == []
