"""Records handovers without end and says which are recorded: `python recorder.py URL`."""

from __future__ import annotations

import sys

from slurm_interleave.client.core.errors import InterleaveError
from slurm_interleave.sql.store import Store
from tests.sql.given import handover, members


def main(url: str) -> None:
    store = Store(url)
    epoch = store.epoch
    store.record(members(), epoch)
    print(epoch, flush=True)
    while True:
        epoch += 1
        store.record(handover(epoch), epoch)
        print(epoch, flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except InterleaveError as error:
        sys.exit(f"recorder: {error}")
