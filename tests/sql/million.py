"""Asks a database of a million slices for a report: `python million.py URL START store|arbiter`.

The store alone gives its pages, the arbiter what the orchestrator sends. Prints the count of slices, the
seconds that it took, and the peak of the process's memory in MiB.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from contextlib import closing
from pathlib import Path

from slurm_interleave.orchestrator.arbiter import Arbiter
from slurm_interleave.orchestrator.core.rules import Rules
from slurm_interleave.orchestrator.links import Links
from slurm_interleave.sql.slices import SliceFilter
from slurm_interleave.sql.store import Store


def main(url: str, start: str, reader: str) -> None:
    wanted = SliceFilter(start=float(start))
    with closing(Store(url)) as store:
        began = time.process_time()
        if reader == "arbiter":
            count = asyncio.run(sent(store, wanted))
        else:
            count = sum(map(len, store.slices(wanted)))
        took = time.process_time() - began
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert peak is not None
    print(count, took, int(peak[1]) / 1024)


async def sent(store: Store, wanted: SliceFilter) -> int:
    with closing(Arbiter(store, Links(), Rules())) as arbiter:
        return sum([len(page) async for page in arbiter.slices(wanted)])


if __name__ == "__main__":
    main(*sys.argv[1:])
