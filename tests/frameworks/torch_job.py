"""A training loop of plain torch, its state on a simulated device: `torch_job OUT SEED STEPS`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from slurm_interleave.client.integrations.torch_offload import Tensors
from slurm_interleave.client.interleaver import Interleaver
from tests.frameworks.watched import OnDevice, tell_step, until_wanted
from tests.torch.training import Training


def main(out: Path, seed: int, steps: int) -> None:
    out.mkdir(parents=True)
    turns, losses = Interleaver.from_env(), []
    with turns.turn("load"):
        training = Training()
        training.draw.manual_seed(seed)
        state = OnDevice(Tensors([training.model], [training.optimizer]))
    for step in range(1, steps + 1):
        with turns.turn("step"):
            losses.append({"step": step, "loss": training.step()})
            until_wanted(turns)
        tell_step(out, step)
    with turns.turn("save"):
        results = {"steps": losses, "weights": training.digest()}
    (out / "results").write_text(json.dumps(results, indent=1))
    state.close()
    turns.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
