"""Which memory limits count for a job: those of its own processes, whoever else calls himself by its id."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_interleave.node_agent import host_room

MIB = 1 << 20


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc with memory cgroups of v1 beside it; job 17 has 300 MiB."""
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "mountinfo").write_text(
        f"31 25 0:27 / {tmp_path}/memory rw - cgroup cgroup rw,memory\n"
    )
    job = tmp_path / "memory" / "slurm" / "uid_1000" / "job_17"
    job.mkdir(parents=True)
    (job / "memory.limit_in_bytes").write_text(f"{300 * MIB}\n")
    (job / "memory.usage_in_bytes").write_text(f"{200 * MIB}\n")
    (job / "memory.stat").write_text("total_inactive_file 0\n")
    return tmp_path


def add(proc: Path, pid: int, path: str) -> None:
    """Add a process that says in its environment that it is of job 17."""
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "cgroup").write_text(f"4:memory:{path}\n")
    (folder / "environ").write_bytes(b"INTERLEAVE_JOB_ID=17\0")


@pytest.mark.parametrize("elsewhere", ["/", "/user.slice", "/slurm/uid_1001/job_99/step_0"])
def test_a_process_elsewhere_that_has_the_jobs_id_does_not_hide_its_limits(
    proc: Path, elsewhere: str
) -> None:
    add(proc, 101, "/slurm/uid_1000/job_17/step_batch")
    add(proc, 102, elsewhere)

    assert [limit.free for limit in host_room._limits_of("17", proc)] == [100 * MIB]


def test_of_a_job_without_a_cgroup_of_slurm_the_limits_above_all_its_processes_count(proc: Path) -> None:
    add(proc, 101, "/")

    assert host_room._limits_of("17", proc) == []
