"""The example for vLLM, twice on one device, with a stand-in for vLLM that sleeps and wakes."""

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
from slurm_interleave.client.sim.records import VIOLATIONS, read_lines

EXAMPLE = Path(__file__).parents[2] / "examples" / "frameworks" / "vllm_rollout.py"
STEPS = 4
# Its weights fill most of the device, and what it says depends on them.
VLLM = """
from types import SimpleNamespace

import numpy as np

from slurm_interleave.client.sim import SimDevice


class SamplingParams:
    def __init__(self, max_tokens, seed):
        self.max_tokens, self.seed = max_tokens, seed


class LLM:
    def __init__(self, model, enable_sleep_mode):
        assert enable_sleep_mode
        self.device, self.host = SimDevice.open(), np.random.default_rng(len(model)).bytes(900 << 10)
        self.wake_up()

    def generate(self, prompts, params):
        def text(weights):
            return "".join(chr(32 + b % 95) for b in weights[params.seed :: 997][: params.max_tokens])

        said = self.device.run("generate", text, self.weights, seconds=0.1)
        return [SimpleNamespace(outputs=[SimpleNamespace(text=said)]) for _ in prompts]

    def sleep(self, level=1, mode="abort"):
        assert (level, mode) == (1, "abort")
        self.host = self.weights.get().tobytes()
        self.weights.free()

    def wake_up(self, tags=None):
        self.weights = self.device.put(np.frombuffer(self.host, np.uint8))
        return True
"""


@pytest.fixture
def lab() -> Iterator[LocalLab]:
    with LocalLab.start(devices=1, sim=SimSettings(memory_mib=1)) as started:
        (started.root / "stand-in").mkdir()
        (started.root / "stand-in" / "vllm.py").write_text(VLLM)
        yield started


def test_two_engines_of_which_one_fits_take_turns_and_say_what_they_say_alone(lab: LocalLab) -> None:
    env = {"PYTHONPATH": str(lab.root / "stand-in")}
    out = {name: lab.root / "out" / name for name in ("alone", "one", "two")}

    def command(name: str) -> list[str]:
        return [sys.executable, str(EXAMPLE), "a/model", str(out[name]), str(STEPS)]

    jobs = [lab.submit(command(name), group="rl", devices=[0], name=name, env=env) for name in ("one", "two")]
    for job in jobs:
        assert lab.wait(job, 100) == 0, lab.output(job)
    alone = lab.submit(command("alone"), group="", devices=[0], name="alone", env=env)
    assert lab.wait(alone, 100) == 0, lab.output(alone)

    grades = {name: json.loads(path.read_text()) for name, path in out.items()}
    assert grades["one"] == grades["two"] == grades["alone"]
    assert len(set(grades["one"])) > 1
    argv = [str(Path(sys.executable).parent / "sinterleave"), "-n", "-P", "-o", "Phase,Switches"]
    told = {**os.environ, "INTERLEAVE_CONFIG": str(lab.config)}
    rows = subprocess.run(argv, env=told, capture_output=True, text=True, check=True).stdout.split()
    assert len(rows) == 2 * (1 + STEPS)
    assert sum(int(row.partition("|")[2]) for row in rows) >= 2
    assert read_lines(lab.scratch.sim / "local" / VIOLATIONS) == []
