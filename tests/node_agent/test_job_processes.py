"""Which processes are a job's: by cgroup, whatever the release calls it, or by Slurm's list."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_interleave.client.sim import processes as sim_processes
from slurm_interleave.node_agent import cgroups, job_processes, processes, users
from slurm_interleave.node_agent.backends.protocol import User
from slurm_interleave.node_agent.job_processes import Handle, Owner
from slurm_interleave.node_agent.processes import Process

LAYOUTS = {
    "22.05 v1": ("freezer", "/slurm/uid_0/job_17", "step_0/task_0"),
    "Debian v1": ("freezer", "/slurm_n1/uid_0/job_17", "step_batch"),
    "v2": ("", "/system.slice/slurmstepd.scope/job_17", "step_0/user/task_0"),
    "Debian v2": ("", "/system.slice/n1_slurmstepd.scope/job_17", "step_extern/user/task_special"),
    "26.05": ("", "/system.slice/slurmstepd.scope/s01JABCDEFGHJK", "step_0/user/task_0"),
}


class Node:
    """A /proc and a /sys/fs/cgroup of our own."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.cgroup = folder / "proc", folder / "cgroup"
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "self" / "mountinfo").write_text(
            f"30 25 0:26 / {self.cgroup}/unified rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
            f"31 25 0:27 / {self.cgroup}/freezer rw,nosuid shared:5 - cgroup cgroup rw,freezer\n"
            f"32 25 0:28 / {self.cgroup}/cpu rw,nosuid shared:6 - cgroup cgroup rw,cpu,cpuacct\n"
            "33 25 8:1 / /home rw - ext4 /dev/sda1 rw\n"
            "34 25 8:2 / /home/\udcff\x85 rw - ext4 /dev/sda2 rw\n",
            errors="surrogateescape",
        )

    def add(
        self,
        pid: int,
        controllers: str,
        path: str,
        job: str = "",
        uid: int = 1000,
        state: str = "S",
        parent: int = 1,
    ) -> None:
        folder = self.proc / str(pid)
        folder.mkdir(exist_ok=True)
        line = f"3:{controllers}:{path}\n0::/\n" if controllers else f"0::{path}\n"
        (folder / "cgroup").write_text(f"7:cpu,cpuacct:/\n{line}", errors="surrogateescape")
        (folder / "environ").write_bytes(f"A=1\0INTERLEAVE_JOB_ID={job}\0".encode() if job else b"A=1\0")
        (folder / "status").write_text(f"Name:\tx\nUid:\t{uid}\t0\t0\t0\nGid:\t{uid}\t0\t0\t0\n")
        fields = [state, str(parent), *["0"] * 17, str(pid * 100)]
        (folder / "stat").write_text(f"{pid} (a) b c) {' '.join(fields)} 0 0\n")
        directory = self.cgroup / (controllers or "unified") / path.lstrip("/")
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / "cgroup.procs").open("a") as file:
            file.write(f"{pid}\n")

    def of_job(self, job: str = "17", uid: int = 1000, pid: int = 0) -> list[int]:
        return [process.pid for process in job_processes.of_job(job, Owner(uid, pid), self.proc)]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """A node without Slurm's commands."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return Node(tmp_path)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_all_below_the_jobs_directory_are_its_processes(node: Node, layout: tuple[str, str, str]) -> None:
    controllers, job, step = layout
    node.add(101, controllers, f"{job}/{step}", job="17")
    node.add(102, controllers, f"{job}/{step}")  # its environment was cleared
    node.add(103, controllers, f"{job}/step_9/user")
    node.add(104, controllers, job.replace("17", "18").replace("s01J", "s02J") + "/step_0", job="18")

    assert node.of_job() == [101, 102, 103]
    assert job_processes.of_job("17", Owner(1000), node.proc)[0] == Process(101, 10100, 1000, 1000)


@pytest.mark.parametrize("name", ["\udcff", "a\x85b", "a b:c"])
def test_a_job_may_name_its_own_directories_as_it_likes(node: Node, name: str) -> None:
    controllers, job, step = LAYOUTS["v2"]
    node.add(101, controllers, f"{job}/{step}/{name}", job="17")
    node.add(102, controllers, f"{job}/{step}/{name}")

    assert node.of_job() == [101, 102]


def test_processes_of_another_user_do_not_count(node: Node) -> None:
    node.add(101, *LAYOUTS["v2"][:2], job="17")
    node.add(102, *LAYOUTS["v2"][:2], job="17", uid=1001)

    assert node.of_job() == [101]


def test_a_process_that_only_says_so_does_not_bring_another_job_with_it(node: Node) -> None:
    node.add(101, "", "/system.slice/slurmstepd.scope/job_18/step_0", job="17")
    node.add(102, "", "/system.slice/slurmstepd.scope/job_18/step_0")

    assert 102 not in node.of_job()


def test_a_directory_that_a_job_made_itself_is_not_taken_for_slurms(node: Node) -> None:
    node.add(101, "", "/system.slice/slurmstepd.scope/job_17/step_0/job_99", job="17")
    node.add(102, "", "/system.slice/slurmstepd.scope/job_17/step_1")
    node.add(103, "", "/user.slice/job_17", job="17")
    node.add(104, "", "/user.slice/job_17")

    assert node.of_job() == [101, 102, 103]


def test_a_process_that_has_ended_does_not_count(node: Node) -> None:
    node.add(101, *LAYOUTS["v2"][:2], job="17")
    node.add(102, *LAYOUTS["v2"][:2], state="Z")

    assert node.of_job() == [101]


def test_without_cgroups_slurm_is_asked(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node.add(101, "", "/user.slice")
    node.add(102, "", "/user.slice")
    node.add(103, "", "/user.slice")
    script = tmp_path / "bin" / "scontrol"
    script.parent.mkdir()
    script.write_text(
        "#!/bin/sh\n[ \"$1 $2\" = 'listpids 17' ] || exit 1\n"
        "echo 'PID      JOBID    STEPID   LOCALID GLOBALID'\n"
        "echo '101      17       batch    0       0'\necho '102 17 0 - -'\necho '-1 17 extern 0 0'\n"
        "echo '103 18 0 0 0'\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:/bin:/usr/bin")

    assert node.of_job() == [101, 102]
    assert node.of_job("18") == []
    node.add(104, "", "/user.slice", job="17")  # those that have not kept the variable are as much the job's
    assert node.of_job() == [101, 102, 104]


def test_a_job_without_slurm_is_what_descends_from_its_process(node: Node) -> None:
    node.add(101, "", "/user.slice")
    node.add(102, "", "/user.slice", parent=101)
    node.add(103, "", "/user.slice", parent=102)
    node.add(104, "", "/user.slice", parent=102, uid=1001)
    node.add(105, "", "/user.slice")

    assert node.of_job("run-1", pid=101) == [101, 102, 103]


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_a_handle_sees_the_end(sleeper: subprocess.Popen[bytes]) -> None:
    process = job_processes.identify(sleeper.pid)
    assert process is not None
    handle = Handle(process)

    before = handle.ended()
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)

    assert (before, handle.ended()) == (False, True)
    handle.close()
    handle.close()


def test_a_process_with_a_used_id_is_another_one(sleeper: subprocess.Popen[bytes]) -> None:
    process = job_processes.identify(sleeper.pid)
    assert process is not None
    other = Process(process.pid, process.started + 1)

    assert job_processes.is_alive(process)
    assert not job_processes.is_alive(other)
    assert Handle(other).ended()


def test_real_cgroups_are_read(sleeper: subprocess.Popen[bytes]) -> None:
    hierarchy = Path("/sys/fs/cgroup/pids")
    root = hierarchy if hierarchy.exists() else Path("/sys/fs/cgroup")
    top = root / f"slurm_test{os.getpid()}"
    job = top / "job_17"
    try:
        (job / "step_0").mkdir(parents=True)
        (job / "step_0" / "cgroup.procs").write_text(str(sleeper.pid))
    except OSError as error:
        pytest.skip(f"cgroups cannot be written here: {error}")
    try:
        found = cgroups.job_directories(sleeper.pid, "17")  # more than one where it is mounted more than once
        assert job in found
        assert all(cgroups.members(path) == {sleeper.pid} for path in found)
    finally:
        (root / "cgroup.procs").write_text(str(sleeper.pid))
        for folder in (job / "step_0", job, top):
            folder.rmdir()


def test_of_equal_names_in_an_environment_the_first_counts_for_all_who_look(node: Node) -> None:
    node.add(101, "", "/user.slice")
    twice = b"A\0INTERLEAVE_JOB_ID=17\0A=1\0INTERLEAVE_JOB_ID=18\0A=2\0"
    (node.proc / "101" / "environ").write_bytes(twice)

    assert processes.variables(101, node.proc) == {"INTERLEAVE_JOB_ID": "17", "A": "1"}
    assert processes.of_jobs(["17", "18"], node.proc) == {"17": [101], "18": []}
    assert processes.job_of(101, node.proc) == "17"
    assert users.owner(User(0, 101, working=True), {"17": 1000, "18": 1000}, {}, node.proc) == "17"


def test_a_process_that_names_itself_with_what_is_no_text_is_seen_like_any_other() -> None:
    script = "import sys; open('/proc/self/comm', 'wb').write(b'\\xff) Z \\xfe'); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()

        seen = job_processes.identify(process.pid)

        assert seen is not None
        assert (seen.uid, processes.parent(process.pid)) == (os.getuid(), os.getpid())
        assert sim_processes.process(process.pid) == (seen.pid, seen.started)
        process.kill()
