"""The installed programs, as processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.server import GivenOrchestrator, free_address

PROGRAM = Path(sys.executable).parent / "sinterleave"


def test_the_installed_program_reports(orchestrator: GivenOrchestrator) -> None:
    done = subprocess.run(
        [PROGRAM, "-X", "-n", "-P", "-j", "17,18"], capture_output=True, text=True, check=True
    )

    assert [line.split("|")[0] for line in done.stdout.splitlines()] == ["17", "18"]
    assert done.stderr == ""


def test_the_installed_program_fails_without_a_traceback() -> None:
    address = free_address()
    done = subprocess.run([PROGRAM, "--address", address], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stderr.startswith(f"sinterleave: error: the orchestrator at {address} cannot be reached")
    assert len(done.stderr.splitlines()) == 1


def test_a_reader_that_leaves_early_causes_no_noise(orchestrator: GivenOrchestrator) -> None:
    orchestrator.slices *= 2000
    with subprocess.Popen(
        [PROGRAM, "-P", "-j", "17"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("JobID|")
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


@pytest.mark.parametrize("closed", ["0", "1", "2", "0 1 2"])
@pytest.mark.parametrize("program", ["sinterleave", "interleave status", "interleave --help"])
def test_closed_standard_streams_change_nothing_but_what_is_seen(
    orchestrator: GivenOrchestrator, program: str, closed: str
) -> None:
    command = f"{PROGRAM.parent}/{program}"
    plain = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    shut = " ".join(f"{number}>&-" for number in closed.split())
    done = subprocess.run(["sh", "-c", f"{command} {shut}"], capture_output=True, text=True, check=False)

    assert done.returncode == plain.returncode
    assert done.stdout == ("" if "1" in closed else plain.stdout)
    assert done.stderr == ("" if "2" in closed else plain.stderr)


@pytest.mark.parametrize("program", ["sinterleave", "interleave"])
def test_without_click_the_programs_say_which_extra_to_install(program: str) -> None:
    code = (
        "import sys; sys.modules['click'] = None\n"
        f"from slurm_interleave.client.cli.{program} import main; sys.exit(main([]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "pip install 'slurm-interleave[cli]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
