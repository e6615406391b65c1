"""Lightning's real loop: what is a turn, and that nothing but the script needs to be there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from lab import LocalLab
from slurm_interleave.client import testing
from tests.frameworks.needs import needs

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "frameworks" / "lightning_fit.py"
LIMIT_S = 100

pytestmark = [needs("torch", "lightning"), pytest.mark.timeout(LIMIT_S + 20)]


def python(*arguments: object) -> list[str]:
    return [sys.executable, "-W", "ignore", *map(str, arguments)]


def run(arguments: Sequence[object]) -> str:
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/examples", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(python(*arguments), env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What `lightning_trace` saw in one process, for all tests: the import takes seconds."""
    out = tmp_path_factory.mktemp("lightning") / "told"
    run(["-m", "tests.frameworks.lightning_trace", out])
    told: dict[str, list[str]] = json.loads(out.read_text())
    return told


def test_the_devices_are_held_from_setup_to_teardown_and_given_up_before_each_batch(
    told: dict[str, list[str]],
) -> None:
    trace = told["fit"]

    assert (trace[0], trace[-1]) == ("acquire fit", "yield")
    assert trace.count("yield") == 3
    assert [trace[at + 1] for at, what in enumerate(trace[:-1]) if what == "yield"] == ["acquire batch"] * 2
    assert [trace[at + 2] for at, what in enumerate(trace[:-1]) if what == "yield"] == ["train 1", "train 2"]
    assert trace.count("validate") == 4


def test_of_two_callbacks_one_does_it(told: dict[str, list[str]]) -> None:
    assert told["twice"] == told["fit"]


def test_a_run_that_fails_keeps_the_devices_until_its_process_ends(told: dict[str, list[str]]) -> None:
    assert told["failed"] == ["acquire fit", "train 0", "yield", "acquire batch"]
    assert told["failed, teardown"] == ["held"]
    assert told["failed, at the end"] == [*told["failed"], "yield"]


def test_a_run_that_fails_gives_its_devices_to_who_waits_though_its_job_goes_on() -> None:
    with testing.orchestrator() as turns:
        env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/examples", **turns.environ("1")}
        argv = python("-m", "tests.frameworks.lightning_fails")
        done = subprocess.run(argv, env=env, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False)

        assert done.returncode == 1
        assert "StepFailed" in done.stderr
        assert "training failed; the devices are given back when this process ends" in done.stderr
        assert turns.history == [("1", "demo", "fit"), ("1", "demo", "batch")]
        assert turns.job("2").try_acquire() is not None


def test_a_plain_trainer_gets_nothing_of_ours(told: dict[str, list[str]]) -> None:
    assert told["outside"] == []


@pytest.fixture
def lab() -> Iterator[LocalLab]:
    with LocalLab.start(devices=1) as started:
        yield started


def test_the_example_takes_turns_without_a_line_of_ours_in_it(lab: LocalLab) -> None:
    names = [entry.name for entry in entry_points(group="lightning.pytorch.callbacks_factory")]
    out = lab.root / "out" / "result"

    job = lab.submit(python(EXAMPLE, out), group="pl", env={"OMP_NUM_THREADS": "1"})
    assert lab.wait(job, LIMIT_S) == 0, lab.output(job)

    assert "interleave" in names
    assert len(json.loads(out.read_text())["losses"]) == 6
    assert phases(lab, job) == ["fit", *["batch"] * 5]


def phases(lab: LocalLab, job: str) -> list[str]:
    argv = [str(Path(sys.executable).parent / "sinterleave"), "-j", job, "-n", "-P", "-o", "Phase"]
    env = {**os.environ, "INTERLEAVE_CONFIG": str(lab.config)}
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout.split()
