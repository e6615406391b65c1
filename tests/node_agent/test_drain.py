"""Saving the processes of a job, with a program that answers as criu does, well or badly."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from slurm_interleave.client.core.errors import WrongState
from slurm_interleave.client.core.states import Context
from slurm_interleave.client.sim.arena import Arena
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.node_agent import processes
from slurm_interleave.node_agent.backends.sim import SimBackend
from slurm_interleave.node_agent.contexts import JobContext
from slurm_interleave.node_agent.criu import Criu
from slurm_interleave.node_agent.images import Image, Images
from tests.cuda.nodes import Suspends
from tests.node_agent.saving import JOB, ORDER, WELL, Slurm, command, criu, drains, stands_still, until

__all__ = ["command"]
LOG = 'echo "(00.1) Error (criu/sk-inet.c:1): inet: Connected TCP socket" >"$6/dump.log"'


class Asked(asyncio.Event):
    """Tells when somebody waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.waited = asyncio.Event()

    async def wait(self) -> Literal[True]:
        self.waited.set()
        return await super().wait()


async def test_a_saved_job_is_requeued_and_does_nothing_more(
    tmp_path: Path, command: subprocess.Popen[bytes]
) -> None:
    slurm = Slurm()
    saving, job = drains(tmp_path, criu(tmp_path), slurm)
    job.context = JobContext(Context.RESIDENT)

    update = await saving.save(ORDER)

    assert (update.ok, update.error) == (True, "")
    assert update.bytes >= 6
    assert update.seconds > 0
    assert slurm.requeued == [JOB]
    assert await asyncio.to_thread(command.wait, 10) == -signal.SIGKILL
    assert job.context.state is Context.SAVED
    image = Images(tmp_path / "images").find(JOB, os.getuid(), "demo")
    assert image is not None
    assert (image.token, image.pid) == ("token", command.pid)
    assert (tmp_path / "images" / JOB).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("dump", "reason"),
    [
        (f"{LOG}; exit 1", "Connected TCP socket"),
        ("sleep 100", "gave no answer within 0.3 s and was ended"),
        ("kill -9 $$", "it gave no reason"),
    ],
)
async def test_after_a_dump_that_fails_the_job_runs_on_and_gets_its_state_at_its_next_turn(
    tmp_path: Path, command: subprocess.Popen[bytes], dump: str, reason: str
) -> None:
    program = criu(tmp_path, f'kill -STOP "$3"; {dump}')
    program._timeout_s = 0.3
    slurm = Slurm()
    saving, job = drains(tmp_path, program, slurm)
    job.context = JobContext(Context.RESIDENT)

    update = await saving.save(ORDER)

    assert not update.ok
    assert reason in update.error
    assert not stands_still(command)
    assert job.context.state is Context.SAVED  # its devices may have been given to others meanwhile
    assert slurm.requeued == []
    assert list((tmp_path / "images").iterdir()) == []


async def test_a_job_whose_image_cannot_be_completed_runs_on_and_says_why(
    tmp_path: Path, command: subprocess.Popen[bytes]
) -> None:
    saving, job = drains(tmp_path, criu(tmp_path, f'{WELL}; mkdir "$6/about.json"'))

    update = await saving.save(ORDER)

    assert "Is a directory" in update.error
    assert (stands_still(command), job.saving, list((tmp_path / "images").iterdir())) == (False, False, [])


async def test_of_what_criu_says_the_last_errors_that_tell_something_are_told(
    tmp_path: Path, command: subprocess.Popen[bytes]
) -> None:
    said = [
        "(00.1) Error (a.c:1): first",
        "(00.2) Error (b.c:2): second",
        "(00.3) Error (c.c:3): rlimit: Can't setup RLIMIT_NOFILE for self: Operation not permitted",
        "(00.4) Error (d.c:4): third",
        "(00.5) Error (e.c:5): Dumping FAILED.",
    ]
    (tmp_path / "said").write_text("\n".join(said))
    saving, _ = drains(tmp_path, criu(tmp_path, f'cp {tmp_path}/said "$6/dump.log"; exit 1'))

    error = (await saving.save(ORDER)).error

    assert error == "criu dump failed: (b.c:2): second; (d.c:4): third"


async def test_a_job_that_slurm_does_not_requeue_runs_on(
    tmp_path: Path, command: subprocess.Popen[bytes]
) -> None:
    saving, _ = drains(tmp_path, criu(tmp_path), Slurm("Requested operation is presently disabled"))

    update = await saving.save(ORDER)

    assert "presently disabled" in update.error
    assert not stands_still(command)
    assert Images(tmp_path / "images").find(JOB, os.getuid(), "demo") is None


async def test_slurm_is_told_which_run_is_to_be_put_back(
    tmp_path: Path, command: subprocess.Popen[bytes]
) -> None:
    """Without that a job that runs again already would count as one that was never put back."""
    slurm = Slurm()
    saving, job = drains(tmp_path, criu(tmp_path), slurm)
    job.request = replace(job.request, restarts=2)

    assert (await saving.save(ORDER)).ok
    assert slurm.restarts == [2]


async def test_nothing_is_killed_once_the_job_has_ended_meanwhile(
    tmp_path: Path, command: subprocess.Popen[bytes]
) -> None:
    """Its process ids may be of others by now."""

    class Ends(Slurm):
        async def requeue(self, job_id: str, restarts: int | None) -> None:
            await super().requeue(job_id, restarts)
            job.ended = True

    saving, job = drains(tmp_path, criu(tmp_path), Ends())

    assert (await saving.save(ORDER)).ok

    command.send_signal(signal.SIGCONT)
    until(lambda: processes.stat_fields(command.pid)[0] in "SZ")
    assert processes.stat_fields(command.pid)[0] == "S"


async def test_nobody_but_the_jobs_own_user_has_its_processes_come_back(tmp_path: Path) -> None:
    saving, job = drains(tmp_path, criu(tmp_path))
    job.request = replace(job.request, uid=os.getuid() + 1)
    images = Images(tmp_path / "images")
    images.begin(JOB)
    images.finish(Image(JOB, os.getuid() + 1, "demo", "token of before", 1 << 22, {}))

    with pytest.raises(WrongState, match=f"process {os.getpid()} is not one of job {JOB}"):
        await anext(saving.resume(job, pb.ResumeRequest(pid=os.getpid())))

    assert images.find(JOB, os.getuid() + 1, "demo") is not None


async def test_a_criu_that_cannot_bring_processes_back_says_what_to_install(tmp_path: Path) -> None:
    saving, job = drains(tmp_path, criu(tmp_path, version="3.17.1"))
    images = Images(tmp_path / "images")
    images.begin(JOB)
    images.finish(Image(JOB, os.getuid(), "demo", "token of before", 1 << 22, {}))

    with pytest.raises(WrongState, match=r"3\.17\.1, too old.* install criu 4\.1"):
        await anext(saving.resume(job, pb.ResumeRequest(pid=os.getpid())))


async def test_where_the_state_of_a_job_is_that_was_not_saved_is_told(tmp_path: Path) -> None:
    told: list[Context] = []
    saves, job = drains(tmp_path, Criu("criu", 5.0), report=lambda job: told.append(job.context.state))
    job.context = JobContext(Context.SAVED, 5)  # it could not be brought back

    answer = await saves.save(pb.Drain(job_id=JOB, attempt="a"))

    assert answer.error
    assert told == [job.context.state]  # and not as it is being saved


async def test_a_save_that_is_given_up_leaves_nothing(
    tmp_path: Path, command: subprocess.Popen[bytes]
) -> None:
    program = criu(tmp_path, 'touch "$6/begun"; sleep 100')
    saving, _ = drains(tmp_path, program)
    task = asyncio.create_task(saving.save(ORDER))
    await asyncio.to_thread(until, lambda: list((tmp_path / "images").glob(f".{JOB}.new/begun")))

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert list((tmp_path / "images").iterdir()) == []


async def test_a_job_that_is_being_saved_is_not_saved_a_second_time(
    tmp_path: Path, command: subprocess.Popen[bytes]
) -> None:
    go_on = tmp_path / "go-on"
    os.mkfifo(go_on)
    saving, job = drains(tmp_path, criu(tmp_path, f"{WELL}; touch {tmp_path}/begun; cat {go_on}"))
    first = asyncio.create_task(saving.save(ORDER))
    await asyncio.to_thread(until, (tmp_path / "begun").exists)
    known, locked = job.saving, saving._lock(JOB).locked()

    second = await saving.save(ORDER)
    await asyncio.to_thread(go_on.write_text, "")

    assert (second.ok, second.under_way) == (False, True)
    assert (await first).ok
    assert Images(tmp_path / "images").find(JOB, os.getuid(), "demo") is not None
    assert locked  # nobody moves its device state meanwhile
    assert (known, job.saving) == (True, True)  # until the job's end, as its agent says in a hello


async def test_a_job_that_was_not_saved_is_not_being_saved_any_more(tmp_path: Path) -> None:
    saving, job = drains(tmp_path, criu(tmp_path))

    for _ in range(2):
        update = await saving.save(ORDER)
        assert (update.ok, update.under_way) == (False, False)

    assert not job.saving


async def test_processes_come_back_once_their_new_attempt_is_known_to_the_orchestrator(
    tmp_path: Path, command: subprocess.Popen[bytes]
) -> None:
    """They know the token of the run before alone, which is that run's until then."""
    told: list[str] = []
    saving, job = drains(tmp_path, criu(tmp_path), report=lambda job: told.append(job.resumed_token))
    known = Asked()
    saving._registered = lambda _: known
    images = Images(tmp_path / "images")
    (images.begin(JOB) / "pages").touch()
    images.finish(Image(JOB, os.getuid(), "demo", "token of before", command.pid, {}, context={}, carried={}))
    resumed = saving.resume(job, pb.ResumeRequest(pid=os.getpid()))
    first = asyncio.ensure_future(anext(resumed))
    await asyncio.wait_for(known.waited.wait(), 30)

    assert (told, first.done()) == ([], False)
    known.set()
    with pytest.raises(WrongState):  # this criu restores nothing
        await first

    assert told == ["token of before", ""]
    assert job.token == "token"


async def test_nobody_moves_the_state_of_processes_that_are_coming_back(tmp_path: Path) -> None:
    saving, job = drains(tmp_path, criu(tmp_path))

    async with saving._in_process.coming_back(job, JobContext(Context.SAVED, 5), {}):
        assert saving._lock(JOB).locked()

    assert not saving._lock(JOB).locked()


async def test_what_an_application_left_on_devices_outside_of_its_processes_is_not_lost_by_a_save(
    tmp_path: Path, command: subprocess.Popen[bytes]
) -> None:
    sim = SimConfig(directory=tmp_path / "sim", devices=1, memory_mib=8)
    saving, job = drains(tmp_path, criu(tmp_path), backend=SimBackend("n1", sim))
    saving._in_process._operations._mover_of = lambda *_: Suspends()
    Arena.open(sim.directory).allocate(JOB, 0, 4096)
    suspended = job.context = JobContext(Context.SAVED, 5, saved_by="app_channel", kept=4096)

    update = await saving.save(ORDER)

    assert "the application left 4096 bytes on its devices, which backend sim would keep" in update.error
    assert (job.context, stands_still(command)) == (suspended, False)


async def test_device_state_outside_of_the_processes_is_not_lost_by_a_save(
    tmp_path: Path, command: subprocess.Popen[bytes]
) -> None:
    sim = SimConfig(directory=tmp_path / "sim", devices=1, memory_mib=8)
    saving, _ = drains(tmp_path, criu(tmp_path), backend=SimBackend("n1", sim))
    Arena.open(sim.directory).allocate(JOB, 0, 4096)

    update = await saving.save(ORDER)

    assert "backend sim keeps the job's device state outside of its processes" in update.error
