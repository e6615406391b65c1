"""What the jobs of test_unchanged.py have: steps that are told, and state on a simulated device."""

from __future__ import annotations

from pathlib import Path

from lab.processes import wait_until
from slurm_interleave.client.integrations.torch_device import HostDevice
from slurm_interleave.client.integrations.torch_offload import Offload, Tensors
from slurm_interleave.client.interleaver import Interleaver
from slurm_interleave.client.sim import SimDevice
from slurm_interleave.client.workload import Workload
from tests.torch.on_sim import OnSim


def tell_step(out: Path, step: int) -> None:
    """Write it whole: somebody reads it meanwhile."""
    (out / "step.part").write_text(str(step))
    (out / "step.part").rename(out / "step")


def until_wanted(turns: Interleaver) -> None:
    """Hold the devices until the partner waits for them, so that the next turn is his."""
    wait_until(lambda: turns.should_yield or not turns.active, 30)


class OnDevice:
    """The state of a job on a simulated device, which the agent takes away until `close`."""

    def __init__(self, tensors: Tensors) -> None:
        state = OnSim(Offload(tensors, HostDevice()), SimDevice.open())
        self._workload = Workload.from_env(state)

    def close(self) -> None:
        if self._workload is not None:
            self._workload.close()
