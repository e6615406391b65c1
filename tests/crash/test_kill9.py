"""Handovers between real processes while orchestrator and agent are killed; the devices are witness.

A thousand handovers; `make soak` does ten thousand. INTERLEAVE_HANDOVERS and --seed choose others.
"""

from __future__ import annotations

import os
import random
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab import LocalLab
from lab.interleave_conf import SimSettings
from slurm_interleave.client.sim.records import VIOLATIONS, read_lines
from slurm_interleave.sql.admin import Database

ROOT = Path(__file__).parents[2]
HANDOVERS = int(os.environ.get("INTERLEAVE_HANDOVERS", "1000"))
LEAST_KILLS = 5
LIMIT_S = 120 + HANDOVERS / 10
ENDS_S = 120.0
# Jobs by group and devices; some device sets meet only partly.
JOBS = [("a", (0,))] * 3 + [("b", (1,))] * 2 + [("c", (1, 2))] + [("d", (3,))] * 2
DAEMONS = ["interleaved", "agent-local"]


@dataclass
class Soak:
    """A lab whose jobs take turns until `stop`."""

    lab: LocalLab
    jobs: list[str]
    stop: Path

    @property
    def database(self) -> Path:
        return self.lab.root / "state" / "orchestrator.db"

    def query(self, sql: str) -> list[tuple[int, ...]]:
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=10)) as db:
            return db.execute(sql).fetchall()

    def handovers(self) -> int:
        """Return how many turns began with a switch."""
        return self.query("SELECT count(*) FROM slices WHERE switched")[0][0]

    def told(self, job: str) -> list[int]:
        """Return the epochs that a job was told."""
        return [int(line) for line in self.out(job).read_text().splitlines()]

    def out(self, job: str) -> Path:
        return self.lab.root / "out" / f"{job}.epochs"


@pytest.fixture
def soak() -> Iterator[Soak]:
    with LocalLab.start(devices=4, sim=SimSettings(memory_mib=1)) as lab:
        running = Soak(lab, [], lab.root / "out" / "stop")
        for number, (group, devices) in enumerate(JOBS, 1):
            out = running.out(f"job-{number}")
            command = [sys.executable, "-m", "tests.crash.member", str(running.stop), str(out)]
            env = {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
            running.jobs.append(lab.submit(command, group=group, devices=devices, env=env))
        yield running


def kill_until_done(soak: Soak, dice: random.Random) -> int:
    """Kill a daemon again and again until enough handovers are recorded; return how often."""
    began, kills = time.monotonic(), 0
    while (done := soak.handovers()) < HANDOVERS or kills < LEAST_KILLS:
        assert time.monotonic() - began < LIMIT_S, f"{done} handovers in {LIMIT_S:g} s"
        time.sleep(dice.uniform(0.0, 7.0))
        for name in dice.choice([DAEMONS[:1], DAEMONS[1:], DAEMONS]):
            soak.lab.kill9(name)
            kills += 1
            time.sleep(dice.choice([0.0, 0.0, 1.0]))
        for name in DAEMONS:
            if not soak.lab.daemons[name].running:
                soak.lab.start_again(name)
    return kills


@pytest.mark.timeout(LIMIT_S + 2 * ENDS_S)
def test_no_handover_is_lost_and_no_two_meet_however_often_we_kill(
    soak: Soak, request: pytest.FixtureRequest
) -> None:
    seed = request.config.getoption("--seed")
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    began = time.monotonic()
    print(f"seed {seed}")

    kills = kill_until_done(soak, random.Random(seed))  # noqa: S311 - dice, no secret
    handovers, seconds = soak.handovers(), time.monotonic() - began
    soak.stop.touch()
    codes = {job: soak.lab.wait(job, ENDS_S) for job in soak.jobs}

    print(f"{handovers} handovers, {kills} kills, {seconds:.1f} s")
    assert codes == dict.fromkeys(soak.jobs, 0), [soak.lab.output(job, 5) for job in soak.jobs if codes[job]]
    assert read_lines(soak.lab.scratch.sim / "local" / VIOLATIONS) == []
    epochs = [epoch for job in soak.jobs for epoch in soak.told(job)]
    slices = [epoch for (epoch,) in soak.query("SELECT epoch FROM slices")]
    assert len(epochs) == len(set(epochs)) >= HANDOVERS
    assert len(slices) == len(set(slices))
    assert set(epochs) <= set(slices), "a grant that a client saw has no slice"
    assert soak.query("SELECT count(*) FROM leases") == [(0,)]
    with Database(f"sqlite:///{soak.database}") as opened:
        assert opened.problems() == []
