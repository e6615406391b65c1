from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np

from slurm_interleave.client.sim import SimDevice
from slurm_interleave.client.sim.arena import Arena

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# OpenBLAS's kernels for this processor sum in another order on two threads; those for newer ones need not.
KERNELS = {"OPENBLAS_CORETYPE": "Haswell"} if platform.machine() == "x86_64" else {}
NO_WAIT = [f"--{phase}-seconds=0" for phase in ("rollout", "train", "reward")]
FAST = ["--steps=2", "--prompts=8", "--hidden=64", *NO_WAIT]


def grpo(arena: Arena, out: Path, *options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    ours = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(EXAMPLES),
        "INTERLEAVE_SIM_DIR": str(arena.directory),
    }
    argv = [sys.executable, "-m", "grpo", "--out", str(out), *options]
    return subprocess.run(
        argv, env={**ours, **environ}, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_run_leaves_rewards_parameters_and_a_summary(arena: Arena, tmp_path: Path) -> None:
    done = grpo(arena, tmp_path / "new" / "out", *FAST)

    out = tmp_path / "new" / "out"
    summary = json.loads((out / "summary.json").read_text())
    header, *lines = (out / "rewards.csv").read_text().splitlines()
    assert done.returncode == 0, done.stderr
    assert header == "step,mean_reward"
    assert [line.split(",")[0] for line in lines] == ["1", "2"]
    assert float(lines[-1].split(",")[1]) == summary["final_reward"]
    assert summary["start"] < summary["end"]
    assert summary["device_s"] > 0
    assert (out / "params.sha256").read_text() == (
        hashlib.sha256((out / "params.npz").read_bytes()).hexdigest() + "  params.npz\n"
    )
    assert np.isfinite(np.load(out / "params.npz")["parameters"]).all()


def test_each_step_prints_a_line(arena: Arena, tmp_path: Path) -> None:
    lines = grpo(arena, tmp_path, *FAST).stdout.splitlines()

    assert len(lines) == 2
    assert lines[1].startswith("step 2/2  reward 0.")


def test_the_number_of_threads_and_the_timing_change_no_bit(arena: Arena, tmp_path: Path) -> None:
    options = [*FAST, "--prompts=32"]
    grpo(arena, tmp_path / "a", *options, **KERNELS, OPENBLAS_NUM_THREADS="1")
    grpo(arena, tmp_path / "b", *options, "--train-seconds=0.05", **KERNELS, OPENBLAS_NUM_THREADS="2")

    for name in ("params.npz", "params.sha256", "rewards.csv"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_full_device_is_one_line_and_no_traceback(arena: Arena, tmp_path: Path) -> None:
    device = SimDevice(arena, 0, "other")
    device.empty(device.total_bytes, np.uint8)

    failed = grpo(arena, tmp_path, *FAST)

    assert failed.returncode == 1
    assert "grpo: device 0: out of memory" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert not (tmp_path / "summary.json").exists()


def test_a_job_that_the_agent_did_not_register_says_so(arena: Arena, tmp_path: Path) -> None:
    failed = grpo(arena, tmp_path, *FAST, INTERLEAVE_GROUP="g", SLURM_JOB_ID="17", INTERLEAVE_NODE="n1")

    assert failed.returncode == 1
    assert "grpo: job 17 of group g is not registered on node n1" in failed.stderr


def test_a_wrong_option_or_folder_is_one_line(arena: Arena, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    wrong = grpo(arena, tmp_path, "--steps=0")
    nowhere = grpo(arena, tmp_path / "file" / "out")

    assert (wrong.returncode, nowhere.returncode) == (1, 1)
    assert wrong.stderr == "grpo: --steps 0: must be a finite number, at least 1\n"
    assert nowhere.stderr.startswith("grpo: [Errno 20]")
