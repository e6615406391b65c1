"""Asks a database of a million slices what `sinterleave` asks by default: `python million.py URL START`.

Prints the count of slices, the seconds that it took, and the peak of the process's memory in MiB.
"""

from __future__ import annotations

import re
import sys
import time
from contextlib import closing
from pathlib import Path

from slurm_interleave.sql.slices import SliceFilter
from slurm_interleave.sql.store import Store


def main(url: str, start: str) -> None:
    with closing(Store(url)) as store:
        began = time.process_time()
        count = sum(map(len, store.slices(SliceFilter(start=float(start)))))
        took = time.process_time() - began
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert peak is not None
    print(count, took, int(peak[1]) / 1024)


if __name__ == "__main__":
    main(*sys.argv[1:])
