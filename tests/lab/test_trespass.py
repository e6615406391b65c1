"""A job script that unsets our variables, and what a site does about it, with all programs as they are."""

from __future__ import annotations

import sys

import pytest

from lab import LocalLab
from lab.processes import wait_until
from tests.lab.commands import interleave

pytestmark = pytest.mark.timeout(60)
WORK = """
import numpy as np
from slurm_interleave.client import Interleaver
from slurm_interleave.client.sim import SimDevice
assert not Interleaver.from_env().active
device = SimDevice.open()
buffer = device.put(np.zeros(10))
print("works", flush=True)
while True:
    device.run("hidden", lambda values: None, buffer, seconds=0.05)
"""
HIDDEN = 'unset INTERLEAVE_GROUP INTERLEAVE_JOB_ID INTERLEAVE_TOKEN; "$1" -c "$0"; echo ended'


@pytest.mark.parametrize("policy", ["warn", "kill"])
def test_a_script_that_unsets_our_variables_is_seen_and_by_policy_killed(policy: str) -> None:
    with LocalLab.start(config={"agent": {"trespass": policy, "watch_s": 0.2}}) as lab:
        plain = lab.submit([sys.executable, "-c", WORK], devices=[1])
        job = lab.submit(["bash", "-c", HIDDEN, WORK, sys.executable], group="demo")
        assert wait_until(lambda: "works" in lab.output(job), 60), lab.output(job)

        if policy == "kill":
            assert wait_until(lambda: "ended" in lab.output(job), 60), lab.logs("agent-local")
            assert "event=trespass.killed" in lab.logs("agent-local")
        else:
            said = f"of job {job}: it works without a lease"
            assert wait_until(lambda: said in interleave(lab, "status").stderr, 60), lab.logs("interleaved")
            assert "event=trespass.seen" in lab.logs("interleaved")
            assert lab.running(job)
        assert "it belongs to no interleaved job" in interleave(lab, "status").stderr
        assert lab.running(plain)
