"""Where a saved command's output goes: which pipes it has, and those that take their place."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from slurm_interleave.node_agent.outputs import inherited, pipes


@contextmanager
def sleeping(stdout: int | IO[Any], stderr: int | IO[Any]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"], stdout=stdout, stderr=stderr) as process:
        try:
            yield process
        finally:
            process.kill()


def name(pipe: IO[bytes] | None) -> str:
    assert pipe is not None
    return f"pipe:[{os.fstat(pipe.fileno()).st_ino}]"


def test_output_and_error_have_a_pipe_each_or_one_for_both() -> None:
    with sleeping(subprocess.PIPE, subprocess.PIPE) as two:
        assert pipes(two.pid) == {name(two.stdout): 1, name(two.stderr): 2}
    with sleeping(subprocess.PIPE, subprocess.STDOUT) as one:
        assert pipes(one.pid) == {name(one.stdout): 1}


def test_what_is_no_pipe_is_left_to_criu(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file, sleeping(file, subprocess.PIPE) as process:
        assert pipes(process.pid) == {name(process.stderr): 2}
    with sleeping(subprocess.DEVNULL, subprocess.DEVNULL) as process:
        assert pipes(process.pid) == {}


def test_pipes_of_the_caller_take_their_place_and_are_closed_here_afterwards() -> None:
    (out, to_out), (err, to_err) = os.pipe(), os.pipe()
    before = len(list(Path("/proc/self/fd").iterdir()))
    try:
        with inherited({"pipe:[1]": 1, "pipe:[2]": 2}, os.getpid(), {1: to_out, 2: to_err}) as given:
            os.write(given["pipe:[1]"], b"out")
            os.write(given["pipe:[2]"], b"err")

        assert (os.read(out, 10), os.read(err, 10)) == (b"out", b"err")
        assert len(list(Path("/proc/self/fd").iterdir())) == before
    finally:
        for descriptor in (out, to_out, err, to_err):
            os.close(descriptor)
