"""Submits the examples on a private Slurm cluster, and waits for them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import Cluster, LabError
from lab.interleave_conf import SimSettings

EXAMPLES = Path(__file__).resolve().parents[1]
SIM = SimSettings(memory_mib=64)
MEMBERS = 3  # that a device may have
_GPU = "--gres=gpu:1"
_TRAINER = ("--interleave-group=trainers", "--interleave-role=trainer", _GPU)
_SAMPLER = ("--interleave-group=samplers", "--interleave-role=sampler", _GPU)
_OWN = ("--interleave-group=none", "--partition=batch", _GPU)


@dataclass(frozen=True)
class Example:
    """A script, and the options of sbatch for each component; *jobs* of them run at once."""

    script: str
    components: tuple[tuple[str, ...], ...]
    jobs: int = 2


EXAMPLES_BY_NAME = {
    "pair": Example("grpo.sh", (("--interleave-group=pair", _GPU),)),
    "three": Example("grpo.sh", (("--interleave-group=three", _GPU),), jobs=3),
    "async": Example("async.sh", (_TRAINER, _OWN)),
    "two-groups": Example("two_groups.sh", (_TRAINER, _SAMPLER)),
    "one-driver": Example("one_driver.sh", (_TRAINER, _SAMPLER)),
}


def submit(cluster: Cluster, example: Example, seed: int, out: Path, more: Sequence[str] = ()) -> str:
    """Submit one job of *example*, with *more* options of its program; return its id. Raises `LabError`."""
    env = {
        **cluster.env,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SAMPLER_ENV": f"INTERLEAVE_SIM_DIR={cluster.scratch.sim / 'n3'}",
    }
    argv = ["sbatch", "--parsable", f"--chdir={EXAMPLES}", f"--output={cluster.out}/%j.out"]
    for number, options in enumerate(example.components):
        argv += [":"] * bool(number) + list(options)
    argv += [str(EXAMPLES / "jobs" / example.script), str(seed), str(out), *more]
    done = subprocess.run(argv, env=env, cwd=EXAMPLES, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"{example.script}: {done.stderr.strip()}")
    return done.stdout.strip().partition(";")[0]


def run(
    cluster: Cluster, example: Example, more: Sequence[str] = (), limit_s: float = 120.0
) -> dict[str, Path]:
    """Run all jobs of *example* at once; return where each left its results. Raises `LabError`."""
    jobs = {}
    for seed in range(1, example.jobs + 1):
        out = cluster.out / f"{example.script}-{example.jobs}-{seed}"
        jobs[submit(cluster, example, seed, out, more)] = out
    for job in jobs:
        cluster.wait(job, timeout_s=limit_s)
    return jobs
