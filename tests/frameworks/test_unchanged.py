"""Real trainings, alone and with a partner: nothing of them changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import LocalLab
from lab.interleave_conf import SimSettings
from lab.processes import wait_until
from slurm_interleave.client.sim.records import VIOLATIONS, read_lines
from tests.frameworks.needs import needs

ROOT = Path(__file__).parents[2]
LIMIT_S = 200
SEED = 3

pytestmark = pytest.mark.timeout(LIMIT_S + 40)


@pytest.fixture
def lab() -> Iterator[LocalLab]:
    with LocalLab.start(devices=2, sim=SimSettings(memory_mib=1)) as started:
        yield started


def submit(lab: LocalLab, module: str, *arguments: object, group: str, device: int = 0) -> str:
    env = {
        "PYTHONPATH": f"{ROOT}:{ROOT}/examples:{ROOT}/deploy",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "HF_HOME": str(lab.root / "hf"),
        "PYTHONWARNINGS": "ignore",
    }
    command = [sys.executable, "-m", f"tests.frameworks.{module}", *map(str, arguments)]
    return lab.submit(command, group=group, devices=[device], name=module.partition("_")[0], env=env)


def reached(out: Path, step: int) -> bool:
    path = out / "step"
    return path.exists() and int(path.read_text()) >= step


def switches(lab: LocalLab, job: str) -> int:
    """Return how many turns of the job began with another job's state being taken off."""
    argv = [str(Path(sys.executable).parent / "sinterleave"), "-j", job, "-n", "-P", "-o", "Switches"]
    env = {**os.environ, "INTERLEAVE_CONFIG": str(lab.config)}
    lines = subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout.split()
    return sum(map(int, lines))


@pytest.mark.parametrize(
    ("module", "steps"),
    [
        pytest.param("trl_job", 10, marks=needs("torch", "trl"), id="trl"),
        pytest.param("torch_job", 12, marks=needs("torch"), id="torch"),
        pytest.param("numpy_job", 12, id="numpy"),
    ],
)
def test_random_turns_snapshots_and_a_killed_orchestrator_leave_the_same_bits(
    lab: LocalLab, module: str, steps: int
) -> None:
    alone, shared, stop = (lab.root / "out" / name for name in ("alone", "shared", "stop"))
    partner = submit(lab, "partner", stop, 5, group="pair")
    solo = submit(lab, module, alone, SEED, steps, group="", device=1)
    job = submit(lab, module, shared, SEED, steps, group="pair")

    seen = wait_until(lambda: reached(shared, 3) or not lab.running(job), LIMIT_S)
    assert seen, lab.output(job)
    lab.kill9("interleaved")
    lab.start_again("interleaved")
    assert lab.wait(job, LIMIT_S) == 0, lab.output(job)
    assert lab.wait(solo, LIMIT_S) == 0, lab.output(solo)
    stop.touch()
    assert lab.wait(partner) == 0, lab.output(partner)

    results = (alone / "results").read_text()
    told = json.loads(results)["steps"]
    assert (shared / "results").read_text() == results
    assert len(told) == steps
    assert len({json.dumps({**step, "step": 0}) for step in told}) > 1, "it stood still, and proves nothing"
    assert switches(lab, job) >= steps // 2
    assert read_lines(lab.scratch.sim / "local" / VIOLATIONS) == []
