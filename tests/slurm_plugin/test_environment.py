"""How the SPANK plugin reads the agent's environment file, which it does as root."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.slurm_plugin.programs import ENVIRONMENT_C, SANITIZED, compile_c

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prints what a job gets from a file; ends at the first memory error."""
    return compile_c(tmp_path_factory.mktemp("c"), ENVIRONMENT_C, "environment.c", flags=SANITIZED)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("jobs")


def read(program: Path, path: Path) -> str:
    done = subprocess.run([program, path], capture_output=True, check=False, timeout=60)
    assert done.stderr == b""
    return done.stdout.decode()


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    path.chmod(0o600)
    return path


def test_a_job_gets_our_variables_and_no_others(program: Path, folder: Path) -> None:
    lines = [
        *("INTERLEAVE_GROUP=demo", "TIMESLICE_JOB_ID=17", "CUDA_VISIBLE_DEVICES=GPU-1,GPU-2"),
        *("SLURM_GPUS_ON_NODE=2", "AGENT_ENDPOINT=unix:/run/x=y", "INTERLEAVE_ROLE="),
    ]
    strange = [
        "PATH=/evil",
        "LD_PRELOAD=x.so",
        "SLURM_JOB_ID=1",
        "XINTERLEAVE_A=1",
        "INTERLEAVE_A b=1",
        "INTERLEAVE_X",
        "",
    ]
    path = write(folder / "both", "\n".join([*strange, *lines, *strange]).encode())

    assert read(program, path).splitlines() == lines


def test_a_missing_file_is_told_from_a_bad_one(program: Path, folder: Path) -> None:
    assert read(program, folder / "missing") == f"errno {errno.ENOENT}\n"
    assert read(program, folder) == f"errno {errno.EPERM}\n"


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_can_write_is_not_believed(program: Path, folder: Path, mode: int) -> None:
    path = write(folder / "open", b"INTERLEAVE_GROUP=demo\n")
    path.chmod(mode)

    assert read(program, path) == f"errno {errno.EPERM}\n"


def test_a_link_is_not_followed_and_a_pipe_is_not_waited_for(program: Path, folder: Path) -> None:
    link, pipe = folder / "link", folder / "pipe"
    link.symlink_to(write(folder / "target", b"INTERLEAVE_GROUP=demo\n"))
    os.mkfifo(pipe, 0o600)

    assert read(program, link) == f"errno {errno.ELOOP}\n"
    assert read(program, pipe) == f"errno {errno.EPERM}\n"


def test_a_file_beyond_64_kib_is_refused(program: Path, folder: Path) -> None:
    line = b"INTERLEAVE_A="

    assert read(program, write(folder / "full", line.ljust(65536, b"x"))).startswith("INTERLEAVE_A=x")
    assert read(program, write(folder / "more", line.ljust(65537, b"x"))) == f"errno {errno.EFBIG}\n"


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=300) | st.text("INTERLEAVE_=\n\0", max_size=80).map(str.encode))
def test_no_bytes_break_the_reader(program: Path, folder: Path, data: bytes) -> None:
    done = subprocess.run(
        [program, write(folder / "any", data)], capture_output=True, check=False, timeout=60
    )

    assert (done.returncode, done.stderr) == (0, b"")
