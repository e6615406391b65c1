"""Processes that come back: into the cgroups of their job, under the ids that they had."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurm_interleave.client.core.errors import WrongState
from slurm_interleave.node_agent import criu as running
from slurm_interleave.node_agent import drain
from slurm_interleave.node_agent.cgroups import entrance
from slurm_interleave.node_agent.criu import Criu, CriuFailed
from slurm_interleave.node_agent.waits import Stop

TAKEN = "(00.1) Error (criu/x.c:1): Can't fork for 4711: File exists"


def cgroups(folder: Path, mine: str, theirs: str) -> None:
    for name, text in (("self", mine), ("5", theirs)):
        (folder / "proc" / name).mkdir(parents=True)
        (folder / "proc" / name / "cgroup").write_text(text)
    (folder / "proc/self/mountinfo").write_text(
        f"30 25 0:26 / {folder}/fs rw - cgroup2 cgroup2 rw\n"
        f"31 25 0:27 / {folder}/fs/memory rw - cgroup cgroup rw,memory\n"
        f"32 25 0:28 / {folder}/fs/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    )


def processes_of(folder: Path) -> Path:
    """Make the cgroup *folder*, and return the file that lists its processes."""
    folder.mkdir(parents=True)
    (folder / "cgroup.procs").touch()
    return folder / "cgroup.procs"


def test_the_cgroup_of_a_process_is_read_from_the_kernel(tmp_path: Path) -> None:
    cgroups(tmp_path, "0::/agent\n", "0::/system.slice/slurm/job_17/step_batch/user/task_0\n")
    there = processes_of(tmp_path / "fs/system.slice/slurm/job_17/step_batch/user/task_0")

    assert entrance(5, tmp_path / "proc") == [there]


def test_of_version_1_only_where_the_two_differ(tmp_path: Path) -> None:
    cgroups(tmp_path, "4:memory:/\n3:cpu,cpuacct:/\n", "4:memory:/slurm/job_17\n3:cpu,cpuacct:/\n")
    there = processes_of(tmp_path / "fs/memory/slurm/job_17")

    assert entrance(5, tmp_path / "proc") == [there]


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
        f'echo "{TAKEN}" >{tmp_path}/restore.log\n'
        "exit 1\n"
    )
    program.chmod(0o755)

    assert await Criu(str(program), 5).restore(tmp_path) == 4711


async def test_a_restore_waits_no_longer_than_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_TAKEN_S", 0.0)
    program = tmp_path / "criu"
    program.write_text(f'#!/bin/sh\necho "{TAKEN}" >{tmp_path}/restore.log\nexit 1\n')
    program.chmod(0o755)

    with pytest.raises(CriuFailed, match="Can't fork for 4711"):
        await Criu(str(program), 5).restore(tmp_path)


async def test_an_image_of_an_agent_that_was_killed_once_it_was_restored_can_be_restored_again(
    tmp_path: Path,
) -> None:
    """criu does not write to a file for the process id that is there."""
    program = tmp_path / "criu"
    program.write_text(f"#!/bin/sh\nset -C\necho 4711 >{tmp_path}/pid\n")
    program.chmod(0o755)
    (tmp_path / "pid").write_text("1")

    assert await Criu(str(program), 5).restore(tmp_path) == 4711


def in_folder(path: str) -> list[Path]:
    return list(Path(path).iterdir())


def child(script: str) -> int:
    return os.posix_spawn("/bin/sh", ["sh", "-c", script], os.environ)


@pytest.mark.parametrize(("ends", "code"), [("exit 7", 7), ("exit 0", 0), ("kill -TERM $$", 128 + 15)])
async def test_their_end_is_told_as_a_shell_does(ends: str, code: int) -> None:
    assert await drain._exit_code(child(ends)) == code


@pytest.mark.parametrize("verb", ["dump", "restore"])
async def test_criu_leaves_devices_and_cgroups_to_the_agent_and_takes_what_a_job_has_open(
    tmp_path: Path, verb: str
) -> None:
    """Its CUDA plugin would move device state a second time, and the cgroups of a job are Slurm's."""
    program = tmp_path / "criu"
    program.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/words\necho 4711 >{tmp_path}/pid\n')
    program.chmod(0o755)
    criu = Criu(str(program), 5)

    await (criu.restore(tmp_path) if verb == "restore" else criu.dump(4711, tmp_path, Stop()))

    words = (tmp_path / "words").read_text().split()
    assert words[0] == verb
    assert in_folder(words[words.index("--libdir") + 1]) == []
    assert {"--manage-cgroups=ignore", "--file-locks", "--tcp-close"} <= set(words)
