"""The example's GRPO, its state on a simulated device: `trl_job OUT SEED STEPS`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from frameworks import trl_grpo
from slurm_interleave.client.integrations import trl as interleave
from slurm_interleave.client.integrations.torch_offload import Tensors
from slurm_interleave.client.interleaver import Interleaver
from tests.frameworks.watched import OnDevice, tell_step, until_wanted


class Watched(TrainerCallback):
    """Puts the state on the device when there is a model and an optimizer."""

    def __init__(self, out: Path, turns: Interleaver) -> None:
        self._out, self._turns = out, turns
        self.state: OnDevice | None = None

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any, optimizer: Any, **_: Any
    ) -> None:
        self.state = OnDevice(Tensors([model], [optimizer]))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        tell_step(self._out, state.global_step)
        until_wanted(self._turns)


def main(out: Path, seed: int, steps: int) -> None:
    torch.set_num_threads(1)
    out.mkdir(parents=True)
    with interleave.session() as turns:
        watched = Watched(out, turns.interleaver)
        trainer = trl_grpo.make_trainer(out, seed, steps, [interleave.callback(turns), watched])
        trainer.train()
    with turns.session("save"):
        trl_grpo.write_results(trainer, out)
    (out / "results-0.json").rename(out / "results")
    if watched.state is not None:
        watched.state.close()
    sys.stdout.flush()
    os._exit(0)  # what the libraries do at the end of Python is no part of this


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
