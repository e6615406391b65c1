"""Saving the processes of a job, with a program that answers as criu does, well or badly."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from slurm_interleave.client.core.errors import SlurmFailed, WrongState
from slurm_interleave.client.core.states import Context
from slurm_interleave.client.sim.arena import Arena
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.node_agent.backends.noop import NoopBackend
from slurm_interleave.node_agent.backends.protocol import Backend
from slurm_interleave.node_agent.backends.sim import SimBackend
from slurm_interleave.node_agent.cgroups import entrance
from slurm_interleave.node_agent.contexts import JobContext
from slurm_interleave.node_agent.criu import Criu, CriuFailed
from slurm_interleave.node_agent.drain import Drains
from slurm_interleave.node_agent.images import Image, Images
from slurm_interleave.node_agent.operations import Operations
from slurm_interleave.node_agent.state import Job, Request, State

# Of this run of the tests alone: its processes are found on the whole host.
JOB = f"drain-{os.getpid()}"
ORDER = pb.Drain(job_id=JOB, attempt="a")
WELL = 'echo pages >"$6/pages-1.img"; kill -STOP "$3"'
LOG = 'echo "(00.1) Error (criu/sk-inet.c:1): inet: Connected TCP socket" >"$6/dump.log"'


def criu(folder: Path, dump: str = WELL, *, version: str = "4.2.1", check: str = "echo Looks good.") -> Criu:
    """Return a criu that does *dump*; its words are dump --tree PID --leave-stopped --images-dir FOLDER."""
    program = folder / "criu"
    lines = [f"--version) echo Version: {version};;", f"check) {check};;", f"dump) {dump};;"]
    program.write_text("#!/bin/sh\ncase $1 in\n" + "\n".join(lines) + "\nesac\n")
    program.chmod(0o755)
    return Criu(str(program), 5.0)


class Slurm:
    """Requeues, or does not."""

    def __init__(self, refusal: str = "") -> None:
        self.requeued: list[str] = []
        self.refusal = refusal

    async def requeue(self, job_id: str, _restarts: int | None) -> None:
        if self.refusal:
            raise SlurmFailed(self.refusal)
        self.requeued.append(job_id)


class Asked(asyncio.Event):
    """Tells when somebody waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.waited = asyncio.Event()

    async def wait(self) -> Literal[True]:
        self.waited.set()
        return await super().wait()


def until(so: Callable[[], object]) -> None:
    while not so():
        pass


@pytest.fixture
def command() -> Iterator[subprocess.Popen[bytes]]:
    """What `interleave run` has started for the job."""
    environment = {**os.environ, "INTERLEAVE_JOB_ID": JOB, "INTERLEAVE_RUN": "1"}
    with subprocess.Popen(["sleep", "1000"], env=environment, start_new_session=True) as process:
        # Popen returns as the program begins, a little before the kernel shows its environment.
        until(lambda: b"INTERLEAVE_RUN" in Path(f"/proc/{process.pid}/environ").read_bytes())
        yield process
        process.kill()


def drains(
    folder: Path,
    program: Criu,
    slurm: Slurm | None = None,
    backend: Backend | None = None,
    report: Callable[[Job], None] = lambda _: None,
) -> tuple[Drains, Job]:
    state = State(folder / "state")
    job = Job(Request(JOB, "demo", "", (0,), os.getuid(), 0), "a", "token")
    state.jobs[JOB] = job
    moving = Operations(state, backend or NoopBackend("n1", 1), 5.0, lambda *_: None)
    images, known = Images(folder / "images"), asyncio.Event()
    known.set()
    requeue = (slurm or Slurm()).requeue

    return Drains(state, moving, images, program, lambda _: None, report, lambda _: known, requeue), job


def stands_still(process: subprocess.Popen[bytes]) -> bool:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


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


async def test_an_image_can_be_read_by_agents_that_know_less_and_has_room_for_more(
    tmp_path: Path, command: subprocess.Popen[bytes]
) -> None:
    saving, _ = drains(tmp_path, criu(tmp_path))
    await saving.save(ORDER)
    file, images = tmp_path / "images" / JOB / "about.json", Images(tmp_path / "images")
    about = json.loads(file.read_text())

    first_release = {"job_id", "uid", "group", "token", "pid", "outputs", "bytes", "context", "carried"}
    assert set(about) == first_release
    image = images.find(JOB, os.getuid(), "demo")
    assert image is not None
    assert image.attempt == ORDER.attempt
    file.write_text(json.dumps({**about, "of a later release": 1}))
    assert images.find(JOB, os.getuid(), "demo") == image


async def test_an_image_that_cannot_be_read_is_told_of(
    tmp_path: Path, command: subprocess.Popen[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    saving, _ = drains(tmp_path, criu(tmp_path))
    await saving.save(ORDER)
    (tmp_path / "images" / JOB / "about.json").write_text("{")

    assert Images(tmp_path / "images").find(JOB, os.getuid(), "demo") is None
    assert "image.unreadable" in caplog.messages


async def test_an_image_is_for_its_own_user_and_group_alone(
    tmp_path: Path, command: subprocess.Popen[bytes]
) -> None:
    saving, _ = drains(tmp_path, criu(tmp_path))
    await saving.save(ORDER)
    images = Images(tmp_path / "images")

    assert images.find(JOB, os.getuid() + 1, "demo") is None
    assert images.find(JOB, os.getuid(), "other") is None
    assert images.find("18", os.getuid(), "demo") is None


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


async def test_a_job_that_slurm_does_not_requeue_runs_on(
    tmp_path: Path, command: subprocess.Popen[bytes]
) -> None:
    saving, _ = drains(tmp_path, criu(tmp_path), Slurm("Requested operation is presently disabled"))

    update = await saving.save(ORDER)

    assert "presently disabled" in update.error
    assert not stands_still(command)
    assert Images(tmp_path / "images").find(JOB, os.getuid(), "demo") is None


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
    known = job.saving

    second = await saving.save(ORDER)
    await asyncio.to_thread(go_on.write_text, "")

    assert (second.ok, second.under_way) == (False, True)
    assert (await first).ok
    assert Images(tmp_path / "images").find(JOB, os.getuid(), "demo") is not None
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
    await asyncio.wait_for(known.waited.wait(), 10)

    assert (told, first.done()) == ([], False)
    known.set()
    with pytest.raises(WrongState):  # this criu restores nothing
        await first

    assert told == ["token of before", ""]
    assert job.token == "token"


async def test_device_state_outside_of_the_processes_is_not_lost_by_a_save(
    tmp_path: Path, command: subprocess.Popen[bytes]
) -> None:
    sim = SimConfig(directory=tmp_path / "sim", devices=1, memory_mib=8)
    saving, _ = drains(tmp_path, criu(tmp_path), backend=SimBackend("n1", sim))
    Arena.open(sim.directory).allocate(JOB, 0, 4096)

    update = await saving.save(ORDER)

    assert "backend sim keeps the job's device state outside of its processes" in update.error


async def test_one_node_of_several_is_not_saved(tmp_path: Path, command: subprocess.Popen[bytes]) -> None:
    saving, job = drains(tmp_path, criu(tmp_path))
    job.request = replace(job.request, nodes=("n1", "n2"))

    assert "runs on 2 nodes" in (await saving.save(ORDER)).error


async def test_what_another_user_marks_as_the_jobs_command_is_not_touched(
    tmp_path: Path, command: subprocess.Popen[bytes]
) -> None:
    saving, job = drains(tmp_path, criu(tmp_path))
    job.request = replace(job.request, uid=os.getuid() + 1)

    assert "has no process that `interleave run` started" in (await saving.save(ORDER)).error
    assert command.poll() is None


async def test_a_job_without_the_command_says_what_to_write(tmp_path: Path) -> None:
    saving, _ = drains(tmp_path, criu(tmp_path))

    assert "must say `interleave run COMMAND`" in (await saving.save(ORDER)).error


async def test_an_attempt_that_is_over_is_not_saved(tmp_path: Path) -> None:
    saving, _ = drains(tmp_path, criu(tmp_path))

    assert "not on this node any more" in (await saving.save(pb.Drain(job_id=JOB, attempt="b"))).error


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ({"version": "3.17.1"}, "3.17.1, too old: Debian 12's 3.17 fails on new kernels; install criu 4.1"),
        ({"version": "4.0"}, "4.0, too old"),
        ({"version": "?"}, "answered 'Version: ?'"),
        (
            {"check": "echo 'Error (criu/x.c:1): no vDSO'; exit 1"},
            "criu check fails on this kernel: (criu/x.c:1)",
        ),
    ],
)
async def test_a_criu_that_cannot_work_here_says_what_to_install(
    tmp_path: Path, program: dict[str, str], reason: str
) -> None:
    with pytest.raises(CriuFailed) as caught:
        await criu(tmp_path, **program).check()

    assert reason in str(caught.value)


async def test_without_criu_the_error_names_the_key(tmp_path: Path) -> None:
    with pytest.raises(CriuFailed, match=r"cannot be run .*No such file.* \[agent\] criu"):
        await Criu(str(tmp_path / "none"), 5).check()


async def test_without_a_folder_for_images_the_error_names_the_key(tmp_path: Path) -> None:
    saving, _ = drains(tmp_path, criu(tmp_path))
    saving._images = Images(None)

    assert "[agent] image_dir is not set" in (await saving.save(ORDER)).error


def cgroups(folder: Path, mine: str, theirs: str) -> None:
    for name, text in (("self", mine), ("5", theirs)):
        (folder / "proc" / name).mkdir(parents=True)
        (folder / "proc" / name / "cgroup").write_text(text)
    (folder / "proc/self/mountinfo").write_text(
        f"30 25 0:26 / {folder}/fs rw - cgroup2 cgroup2 rw\n"
        f"31 25 0:27 / {folder}/fs/memory rw - cgroup cgroup rw,memory\n"
        f"32 25 0:28 / {folder}/fs/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    )


def test_the_cgroup_of_a_process_is_read_from_the_kernel(tmp_path: Path) -> None:
    cgroups(tmp_path, "0::/agent\n", "0::/system.slice/slurm/job_17/step_batch/user/task_0\n")
    folder = tmp_path / "fs/system.slice/slurm/job_17/step_batch/user/task_0"
    folder.mkdir(parents=True)
    (folder / "cgroup.procs").touch()

    assert entrance(5, tmp_path / "proc") == [folder / "cgroup.procs"]


def test_of_version_1_only_where_the_two_differ(tmp_path: Path) -> None:
    cgroups(tmp_path, "4:memory:/\n3:cpu,cpuacct:/\n", "4:memory:/slurm/job_17\n3:cpu,cpuacct:/\n")
    folder = tmp_path / "fs/memory/slurm/job_17"
    folder.mkdir(parents=True)
    (folder / "cgroup.procs").touch()

    assert entrance(5, tmp_path / "proc") == [folder / "cgroup.procs"]


def test_a_cgroup_that_cannot_be_entered_is_named(tmp_path: Path) -> None:
    cgroups(tmp_path, "0::/agent\n", "0::/job_17\n")

    with pytest.raises(WrongState, match=r"job_17/cgroup\.procs cannot be written"):
        entrance(5, tmp_path / "proc")


async def test_a_restore_enters_the_cgroups_first(tmp_path: Path) -> None:
    program = tmp_path / "criu"
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/procs && echo 4711 >{tmp_path}/pid\n")
    program.chmod(0o755)

    assert await Criu(str(program), 5).restore(tmp_path, [tmp_path / "procs"]) == 4711
    assert (tmp_path / "procs").read_text() == "0\n"


async def test_a_restore_waits_for_process_ids_that_are_taken(tmp_path: Path) -> None:
    program = tmp_path / "criu"
    program.write_text(
        f"#!/bin/sh\n[ -e {tmp_path}/again ] && echo 4711 >{tmp_path}/pid && exit 0\ntouch {tmp_path}/again\n"
        f'echo "(00.1) Error (criu/x.c:1): Can\'t fork for 4711: File exists" >{tmp_path}/restore.log\n'
        "exit 1\n"
    )
    program.chmod(0o755)

    assert await Criu(str(program), 5).restore(tmp_path) == 4711
