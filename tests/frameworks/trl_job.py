"""The example's GRPO, its state on a simulated device: `python -m tests.frameworks.trl_job OUT SEED STEPS`.

After each step its number is in OUT/step; at the end OUT/moves says how often the state was taken away.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from frameworks import trl_grpo
from slurm_interleave.client.integrations import trl as interleave
from slurm_interleave.client.integrations.torch_device import HostDevice
from slurm_interleave.client.integrations.torch_offload import Offload, Tensors
from slurm_interleave.client.sim import SimDevice
from slurm_interleave.client.workload import Workload
from tests.torch.on_sim import OnSim


class Counted(OnSim):
    moves = 0

    def suspend(self, tags: Sequence[str], *, discard: bool) -> None:
        super().suspend(tags, discard=discard)
        self.moves += 1


class Watched(TrainerCallback):
    """Puts the state on the device when there is a model and an optimizer, and tells each step."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self.state: Counted | None = None
        self.workload: Workload | None = None

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any, optimizer: Any, **_: Any
    ) -> None:
        self.state = Counted(Offload(Tensors([model], [optimizer]), HostDevice()), SimDevice.open())
        self.workload = Workload.from_env(self.state)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        (self._out / "step").write_text(str(state.global_step))


def main(out: Path, seed: int, steps: int) -> None:
    torch.set_num_threads(1)
    out.mkdir(parents=True)
    watched = Watched(out)
    with interleave.session() as turns:
        trainer = trl_grpo.make_trainer(out, seed, steps, [interleave.callback(turns), watched])
        trainer.train()
    with turns.session("save"):
        trl_grpo.write_results(trainer, out)
        (out / "moves").write_text(str(watched.state.moves if watched.state else 0))
    if watched.workload is not None:
        watched.workload.close()
    sys.stdout.flush()
    os._exit(0)  # what the libraries do at the end of Python is no part of this


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
