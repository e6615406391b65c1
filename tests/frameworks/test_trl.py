"""A real GRPO of TRL, alone and with a partner: nothing of it changes."""

from __future__ import annotations

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
STEPS = 10
LIMIT_S = 200

pytestmark = [needs("torch", "trl"), pytest.mark.timeout(LIMIT_S + 40)]


@pytest.fixture
def lab() -> Iterator[LocalLab]:
    with LocalLab.start(devices=2, sim=SimSettings(memory_mib=1)) as started:
        yield started


def submit(lab: LocalLab, module: str, *arguments: object, group: str, device: int = 0) -> str:
    env = {
        "PYTHONPATH": f"{ROOT}:{ROOT}/examples",
        "OMP_NUM_THREADS": "1",
        "HF_HOME": str(lab.root / "hf"),
        "PYTHONWARNINGS": "ignore",
    }
    command = [sys.executable, "-m", f"tests.frameworks.{module}", *map(str, arguments)]
    return lab.submit(command, group=group, devices=[device], name=module.partition("_")[0], env=env)


def reached(out: Path, step: int) -> bool:
    path = out / "step"
    return path.exists() and int(path.read_text() or 0) >= step


def test_grpo_under_random_turns_snapshots_and_a_killed_orchestrator_ends_with_the_same_bits(
    lab: LocalLab,
) -> None:
    alone, shared, stop = (lab.root / "out" / name for name in ("alone", "shared", "stop"))
    solo = submit(lab, "trl_job", alone, 3, STEPS, group="", device=1)
    job = submit(lab, "trl_job", shared, 3, STEPS, group="pair")
    partner = submit(lab, "partner", stop, 5, group="pair")

    seen = wait_until(lambda: reached(shared, 3) or not lab.running(job), LIMIT_S)
    assert seen, lab.output(job)
    lab.kill9("interleaved")
    lab.start_again("interleaved")
    assert lab.wait(job, LIMIT_S) == 0, lab.output(job)
    assert lab.wait(solo, LIMIT_S) == 0, lab.output(solo)
    stop.touch()
    assert lab.wait(partner) == 0, lab.output(partner)

    results = (alone / "results-0.json").read_text()
    assert (shared / "results-0.json").read_text() == results
    assert results.count('"step"') == STEPS
    assert len({line for line in results.splitlines() if '"reward"' in line}) > 1
    assert int((shared / "moves").read_text()) >= STEPS // 2
    assert read_lines(lab.scratch.sim / "local" / VIOLATIONS) == []
