"""Where the demo's jobs run: a private Slurm cluster, or local processes without Slurm."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from demo.jobs import DemoJob
from lab import Cluster, LabError, LocalLab
from lab.interleave_conf import SimSettings

GROUP = "demo"
# One job's context fills more than half of a device: without turns the second runs out of memory.
SIM = SimSettings(memory_mib=64, snapshot_gib_s=2.0, restore_gib_s=2.0)
_START_S, _RUN_S = 30.0, 120.0


class Place(Protocol):
    """What the demo needs of a place."""

    root: Path
    config: Path

    def submit_alone(self, job: DemoJob, out: Path) -> str:
        """Start *job* with a device of its own; return its id."""

    def submit_interleaved(self, job: DemoJob, out: Path) -> str:
        """Start *job* as a member of the group; return its id."""

    def running(self, job_id: str) -> bool:
        """Tell whether the job has not ended yet."""

    def check(self, job_id: str) -> None:
        """Raise `LabError`, with the job's output, unless it ended well."""

    def work_files(self) -> list[Path]:
        """Return what the simulated devices recorded."""


class SlurmPlace:
    """The private cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.root, self.config = cluster.root, cluster.config

    def submit_alone(self, job: DemoJob, out: Path) -> str:
        """Submit a plain job with a whole GPU."""
        env = {**job.environment(), "INTERLEAVE_SIM_DIR": str(self._cluster.scratch.sim / "n3")}
        return self._cluster.sbatch(job.command(out), gres="gpu:1", name=f"{job.label}-alone", env=env)

    def submit_interleaved(self, job: DemoJob, out: Path) -> str:
        """Submit it with --interleave-group."""
        return self._cluster.sbatch(
            job.command(out), gres="gpu:1", group=GROUP, name=job.label, env=job.environment()
        )

    def running(self, job_id: str) -> bool:
        """Ask Slurm."""
        return self._cluster.state(job_id) in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")

    def check(self, job_id: str) -> None:
        """Ask Slurm how it ended."""
        self._cluster.wait(job_id, timeout_s=5)

    def work_files(self) -> list[Path]:
        """One file a node."""
        return sorted(self._cluster.scratch.sim.glob("*/work.jsonl"))


class LocalPlace:
    """Local processes."""

    def __init__(self, lab: LocalLab) -> None:
        self._lab = lab
        self.root, self.config = lab.root, lab.config

    def submit_alone(self, job: DemoJob, out: Path) -> str:
        """Start it on the second device, which nobody shares."""
        return self._lab.submit(
            job.command(out), devices=[1], name=f"{job.label}-alone", env=job.environment()
        )

    def submit_interleaved(self, job: DemoJob, out: Path) -> str:
        """Start it as a member of the group on the first device."""
        return self._lab.submit(
            job.command(out), devices=[0], group=GROUP, name=job.label, env=job.environment()
        )

    def running(self, job_id: str) -> bool:
        """Look at its process."""
        return self._lab.running(job_id)

    def check(self, job_id: str) -> None:
        """Look at its exit code."""
        code = self._lab.wait(job_id, timeout_s=10)
        if code:
            raise LabError(f"job {job_id} ended with exit code {code}\n{self._lab.output(job_id)}")

    def work_files(self) -> list[Path]:
        """One file."""
        return sorted(self._lab.scratch.sim.glob("*/work.jsonl"))


@contextlib.contextmanager
def open_place(*, slurm: bool) -> Iterator[Place]:
    """Start a place, and end and remove it with the context. Raises `LabError` if it cannot start."""
    if slurm:
        with Cluster.start(sim=SIM) as cluster:
            yield SlurmPlace(cluster)
    else:
        with LocalLab.start(sim=SIM) as lab:
            yield LocalPlace(lab)
