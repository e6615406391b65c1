"""An agent is killed while it saves the processes of a job: the next one ends what it has left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_interleave.client.core.errors import SlurmFailed
from slurm_interleave.client.core.states import Context
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.node_agent import processes
from slurm_interleave.node_agent.backends.noop import NoopBackend
from slurm_interleave.node_agent.contexts import JobContext
from slurm_interleave.node_agent.criu import Criu
from slurm_interleave.node_agent.drain import Drains
from slurm_interleave.node_agent.images import Image, Images
from slurm_interleave.node_agent.operations import Operations
from slurm_interleave.node_agent.state import Job, Request, State
from tests.node_agent.saving import a_tree, children, until

JOB = f"drain-crash-{os.getpid()}"
_STOP = 'kill -STOP "$3" $(cat /proc/$3/task/$3/children); echo pages >"$6/pages-1.img"'
# As in the real criu's: the tree stands still, and the dump goes on. No child has its words.
CUT_SHORT = f'{_STOP}; mkfifo "$BEGUN.never"; exec 9<>"$BEGUN.never"; : >"$BEGUN"; read _ <&9'
COMPLETE = _STOP
KILLED = """
import asyncio, os, sys
from pathlib import Path
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.node_agent.state import State
from tests.node_agent.test_drain_crash import Agent

agent = Agent(Path(sys.argv[1]), sys.argv[2], stuck=True)
asyncio.run(agent.drains.save(pb.Drain(job_id=sys.argv[2], attempt="a")))
"""
ROOT = Path(__file__).parents[2]


class Agent:
    """What of an agent saves processes; all of it that outlives it is in *folder*."""

    def __init__(self, folder: Path, job_id: str = JOB, refusal: str = "", *, stuck: bool = False) -> None:
        self._folder, self._refusal, self._stuck = folder, refusal, stuck
        self.told: list[pb.DrainUpdate] = []
        self.requeued: list[str] = []
        state = State(folder / "state")
        self.job = state.jobs[job_id]
        self.images = Images(folder / "images")
        self.drains = Drains(
            state,
            Operations(state, NoopBackend("n1", 1), 5.0, lambda *_: None),
            self.images,
            Criu(str(folder / "criu"), 1000.0),
            lambda message: self.told.append(message.drained),
            lambda _: None,
            lambda _: asyncio.Event(),
            self._requeue,
        )

    async def _requeue(self, job_id: str, _restarts: int | None) -> None:
        if self._stuck:
            (self._folder / "begun").touch()
            await asyncio.Event().wait()
        if self._refusal:
            raise SlurmFailed(self._refusal)
        self.requeued.append(job_id)

    async def recover(self) -> None:
        for work in self.drains.unfinished():
            await work


@pytest.fixture
def tree() -> Iterator[subprocess.Popen[bytes]]:
    """What `interleave run` has started for the job, with a child of its own."""
    with a_tree(JOB) as process:
        yield process


def standing_still(process: subprocess.Popen[bytes]) -> list[bool]:
    return [processes.stat_fields(pid)[0] == "T" for pid in (process.pid, *children(process))]


def an_agent_is_killed(folder: Path, dump: str, context: Context = Context.RESIDENT) -> None:
    """Let an agent save the job, and kill -9 it when its dump, or its requeue, has begun."""
    program = folder / "criu"
    lines = ["--version) echo Version: 4.2.1;;", "check) ;;", f"dump) {dump};;"]
    program.write_text(f"#!/bin/sh\nBEGUN={folder}/begun\ncase $1 in\n" + "\n".join(lines) + "\nesac\n")
    program.chmod(0o755)
    state = State(folder / "state")
    request = Request(JOB, "demo", "", (0,), os.getuid(), 0)
    state.jobs[JOB] = Job(request, "a", "token", context=JobContext(context))
    state.save()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("INTERLEAVE_JOB_ID", None)
    with subprocess.Popen([sys.executable, "-c", KILLED, str(folder), JOB], env=environment) as agent:
        until((folder / "begun").exists)
        agent.kill()


def dumps(folder: Path) -> list[int]:
    return processes.with_words("--images-dir", str(folder / "images" / f".{JOB}.new"))


@pytest.fixture(autouse=True)
def no_dump_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    for pid in dumps(tmp_path):
        os.kill(pid, signal.SIGKILL)


async def test_processes_that_an_agent_left_standing_still_go_on(
    tmp_path: Path, tree: subprocess.Popen[bytes]
) -> None:
    an_agent_is_killed(tmp_path, CUT_SHORT)
    left, stood = dumps(tmp_path), standing_still(tree)

    agent = Agent(tmp_path)
    known = agent.job.saving
    await agent.recover()

    assert (len(left), stood, known) == (1, [True, True], True)
    assert (dumps(tmp_path), standing_still(tree)) == ([], [False, False])
    assert list((tmp_path / "images").iterdir()) == []
    [update] = agent.told
    assert (update.job_id, update.ok, update.under_way) == (JOB, False, False)
    assert "the node's agent was restarted meanwhile" in update.error
    assert agent.job.context.state is Context.SAVED  # its devices may be others' by now
    assert [agent.job.saving, Agent(tmp_path).job.saving] == [False, False]


async def test_a_complete_image_is_followed_by_the_requeue_that_was_to_come(
    tmp_path: Path, tree: subprocess.Popen[bytes]
) -> None:
    an_agent_is_killed(tmp_path, COMPLETE)
    stood = standing_still(tree)

    agent = Agent(tmp_path)
    await agent.recover()

    assert stood == [True, True]
    assert agent.requeued == [JOB]
    assert await asyncio.to_thread(tree.wait, 10) == -signal.SIGKILL
    assert agent.images.find(JOB, os.getuid(), "demo") is not None
    assert [update.ok for update in agent.told] == [True]
    assert agent.job.saving, "until the job's end"


async def test_processes_go_on_where_slurm_does_not_requeue_their_job_then_either(
    tmp_path: Path, tree: subprocess.Popen[bytes]
) -> None:
    an_agent_is_killed(tmp_path, COMPLETE)

    agent = Agent(tmp_path, refusal="Requested operation is presently disabled")
    await agent.recover()

    assert standing_still(tree) == [False, False]
    assert list((tmp_path / "images").iterdir()) == []
    assert "presently disabled" in agent.told[0].error


async def test_an_agent_that_is_stopped_while_it_asks_slurm_leaves_the_job_to_the_next_one(
    tmp_path: Path, tree: subprocess.Popen[bytes]
) -> None:
    """Slurm may have requeued it: the image is what there is of it then."""
    an_agent_is_killed(tmp_path, COMPLETE)
    (tmp_path / "begun").unlink()
    asking = Agent(tmp_path, stuck=True)
    stopped = asyncio.create_task(asking.recover())
    await asyncio.to_thread(until, (tmp_path / "begun").exists)
    assert asking.drains._lock(JOB).locked()  # nobody moves its device state meanwhile
    stopped.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopped
    stood = standing_still(tree)

    agent = Agent(tmp_path)
    await agent.recover()

    assert stood == [True, True]
    assert agent.requeued == [JOB]
    assert agent.images.find(JOB, os.getuid(), "demo") is not None


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("other", ["attempt", "pid"])
async def test_an_image_of_other_processes_is_not_taken_for_the_one_that_was_begun(
    tmp_path: Path, tree: subprocess.Popen[bytes], bystander: subprocess.Popen[bytes], other: str
) -> None:
    """Processes that came back from it run on, and what they did since would be lost."""
    an_agent_is_killed(tmp_path, CUT_SHORT)
    agent = Agent(tmp_path)
    about = {"attempt": "a", "pid": tree.pid, other: "earlier" if other == "attempt" else bystander.pid}
    agent.images.finish(Image(JOB, os.getuid(), "demo", "token", outputs={}, **about))

    await agent.recover()

    assert (agent.requeued, standing_still(tree), bystander.poll()) == ([], [False, False], None)


@pytest.mark.parametrize("saved", [True, False])
async def test_a_tree_that_has_begun_beside_the_one_that_was_saved_hides_neither(
    tmp_path: Path, tree: subprocess.Popen[bytes], saved: bool
) -> None:
    an_agent_is_killed(tmp_path, CUT_SHORT)
    agent = Agent(tmp_path)
    with a_tree(JOB) as later:
        if saved:
            agent.images.finish(Image(JOB, os.getuid(), "demo", "token", later.pid, {}, attempt="a"))
        for pid in (later.pid, *children(later)):
            os.kill(pid, signal.SIGSTOP)

        await agent.recover()

        assert agent.requeued == ([JOB] if saved else [])
        if saved:
            assert await asyncio.to_thread(later.wait, 10) == -signal.SIGKILL
        else:
            assert standing_still(tree) + standing_still(later) == [False] * 4


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to start a process of another user")
async def test_a_process_of_another_user_that_has_the_words_of_a_dump_is_left_alone(
    tmp_path: Path, tree: subprocess.Popen[bytes]
) -> None:
    an_agent_is_killed(tmp_path, CUT_SHORT)
    words = ["sh", "-c", "read _", "--images-dir", str(tmp_path / "images" / f".{JOB}.new")]
    pipe = asyncio.subprocess.PIPE
    other = await asyncio.create_subprocess_exec(*words, user=65534, stdin=pipe, start_new_session=True)
    until(lambda: other.pid in dumps(tmp_path))

    await Agent(tmp_path).recover()

    assert dumps(tmp_path) == [other.pid]
    await other.communicate(b"\n")
    assert other.returncode == 0


async def test_where_the_processes_have_ended_meanwhile_nothing_is_done(
    tmp_path: Path, tree: subprocess.Popen[bytes]
) -> None:
    an_agent_is_killed(tmp_path, CUT_SHORT)
    os.killpg(tree.pid, signal.SIGKILL)
    tree.wait()

    agent = Agent(tmp_path)
    await agent.recover()

    assert (agent.requeued, dumps(tmp_path)) == ([], [])
    assert "has no process that `interleave run` started" in agent.told[0].error
    assert not agent.job.saving


async def test_processes_go_on_where_the_site_has_no_folder_for_images_any_more(
    tmp_path: Path, tree: subprocess.Popen[bytes]
) -> None:
    an_agent_is_killed(tmp_path, COMPLETE)
    agent = Agent(tmp_path)
    agent.drains._images = Images(None)

    await agent.recover()

    assert standing_still(tree) == [False, False]


async def test_an_agent_that_was_killed_as_the_job_ended_leaves_no_save_to_go_on_with(
    tmp_path: Path, tree: subprocess.Popen[bytes]
) -> None:
    an_agent_is_killed(tmp_path, CUT_SHORT)
    agent = Agent(tmp_path)
    agent.job.ended = True

    assert agent.drains.unfinished() == []


async def test_an_agent_of_an_earlier_release_has_saved_nobody(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    state.jobs[JOB] = Job(Request(JOB, "demo", "", (0,), os.getuid(), 0), "a", "token")
    state.save()
    path = tmp_path / "state" / "agent.json"
    stored = json.loads(path.read_text())
    del stored["jobs"][0]["saving"]
    path.write_text(json.dumps(stored))

    assert Agent(tmp_path).drains.unfinished() == []
