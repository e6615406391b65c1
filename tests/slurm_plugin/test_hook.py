"""How slurmstepd runs interleave-hook (hook.c), compiled alone."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from tests.slurm_plugin.programs import SANITIZED, compile_c

pytestmark = pytest.mark.slurm  # interleave.h needs Slurm's headers

HOOK_C = r"""
#include "interleave.h"

int main(int argc, char **argv)
{
	struct job_start job = {
		17, 1000, 100, "alice", "a c", "interleave", argv[2], "1", argv[3], argv[4], argv[5],
		argv[6], argv[7],
	};

	return (argc == 8 && hook_job_start(argv[1], "/run/x", &job) == 0 ? 0 : 1);
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(tmp_path_factory.mktemp("c"), HOOK_C, "hook.c", flags=SANITIZED)


def run(
    program: Path, hook: Path, body: str, group: str = "demo", more: tuple[str, ...] = ("",) * 5
) -> subprocess.CompletedProcess[str]:
    """Run *program* with the shell script *body* as the hook; *more*: its role and all behind it."""
    hook.write_text(f"#!/bin/sh\n{body}\n")
    hook.chmod(0o755)
    argv, env = [str(program), str(hook), group, *more], {"SECRET": "1"}
    return subprocess.run(argv, capture_output=True, text=True, env=env, check=False, timeout=60)


@pytest.mark.parametrize("group", ["demo", "$(reboot)", "a b", "'"])
def test_the_hook_gets_the_job_as_arguments_and_nothing_else(
    program: Path, tmp_path: Path, group: str
) -> None:
    done = run(
        program,
        tmp_path / "hook",
        f'printf "%s\\n" "$@" >{tmp_path}/seen; env >{tmp_path}/env; echo x; echo y >&2',
        group,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "seen").read_text().splitlines() == [
        *("job-start", "--socket=/run/x/agent.sock", "--job=17", "--uid=1000", "--gid=100"),
        *("--user=alice", "--account=a c", "--partition=interleave", "--restarts=1", f"--group={group}"),
    ]
    env = dict(line.partition("=")[::2] for line in (tmp_path / "env").read_text().splitlines())
    assert env["PATH"].endswith(":/usr/bin:/sbin:/bin")
    assert "SECRET" not in env


def test_the_hook_gets_what_else_was_chosen(program: Path, tmp_path: Path) -> None:
    chosen = ("$(reboot)", "app_channel+cuda", "600", "math", "0")

    run(program, tmp_path / "hook", f'printf "%s\\n" "$@" >{tmp_path}/seen', more=chosen)

    words = (tmp_path / "seen").read_text().splitlines()
    assert words[-5:] == [
        *("--role=$(reboot)", "--backend=app_channel+cuda", "--max-wait=600"),
        *("--profile=math", "--max-slowdown=0"),
    ]


@pytest.mark.parametrize("body", ["exit 1", "kill -9 $$"])
def test_a_hook_that_fails_is_no_registration(program: Path, tmp_path: Path, body: str) -> None:
    assert run(program, tmp_path / "hook", body).returncode == 1


def test_a_hook_that_is_not_there_is_no_registration(program: Path, tmp_path: Path) -> None:
    done = subprocess.run([program, tmp_path / "none", "demo", *("",) * 5], check=False, timeout=60)

    assert done.returncode == 1


def test_a_hook_that_hangs_is_ended_with_all_it_started(program: Path, tmp_path: Path) -> None:
    begin = time.monotonic()

    done = run(program, tmp_path / "hook", f"sleep 60 & echo $! >{tmp_path}/pid; wait")

    assert done.returncode == 1
    assert time.monotonic() - begin < 15
    state = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"
