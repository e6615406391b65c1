"""What the torch jobs of test_unchanged.py have: state on a simulated device, and steps that are told."""

from __future__ import annotations

from pathlib import Path

from slurm_interleave.client.integrations.torch_device import HostDevice
from slurm_interleave.client.integrations.torch_offload import Offload, Tensors
from slurm_interleave.client.sim import SimDevice
from slurm_interleave.client.workload import Workload
from tests.torch.on_sim import OnSim


def tell_step(out: Path, step: int) -> None:
    """Write it whole: somebody reads it meanwhile."""
    (out / "step.part").write_text(str(step))
    (out / "step.part").rename(out / "step")


class OnDevice:
    """The state of a job on a simulated device, which the agent takes away until `close`."""

    def __init__(self, tensors: Tensors) -> None:
        state = OnSim(Offload(tensors, HostDevice()), SimDevice.open())
        self._workload = Workload.from_env(state)

    def close(self) -> None:
        if self._workload is not None:
            self._workload.close()
