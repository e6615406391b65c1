"""What each rank does in test_ranks.py; run by `spawn`, so in a module of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from slurm_interleave.client.core.errors import InterleaveError
from slurm_interleave.client.integrations.ranks import TorchRanks
from slurm_interleave.client.integrations.turns import Turns
from tests.frameworks.traces import Traced

RANKS, STEPS = 2, 3


def main(rank: int, folder: str, env: Mapping[str, str]) -> None:
    """Write each event with its time to the file of this rank."""
    import torch.distributed as dist

    os.environ.update(env, RANK=str(rank), LOCAL_RANK=str(rank), GLOO_SOCKET_IFNAME="lo")
    with (Path(folder) / str(rank)).open("w", buffering=1) as file:

        def tell(what: str) -> None:
            print(time.monotonic_ns(), what, file=file)

        interleaver = Traced(tell)
        turns = Turns(interleaver, TorchRanks.from_env(os.environ))
        turns.start("load")
        tell("work")
        dist.init_process_group("gloo")
        for _ in range(STEPS):
            turns.boundary()
            tell("work")
            time.sleep(0.02 * rank)  # the leader is ready before the other is
            tell("done")
        interleaver.refuses = "no room"
        try:
            turns.boundary()
        except InterleaveError as error:
            tell(f"error {error}")
        dist.barrier()
        dist.destroy_process_group()
        interleaver.refuses = ""
        turns.start("again")
        tell("work")
        time.sleep(0.2 * rank)
        tell("done")
        turns.leave()  # there is no group any more on which the ranks would meet
    os._exit(0)  # at a usual end of Python a thread of gloo may abort the process
