"""A saved command's output: pipes to the `interleave run` that relays it, new at each start of the job.

A file would not do: criu restores one only at the size that it had, and Slurm writes to a requeued job's
output.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path


def pipes(pid: int) -> dict[str, int]:
    """Return criu's names of the pipes that standard output and error of *pid* are, with which of the two."""
    found: dict[str, int] = {}
    for number in (1, 2):
        with contextlib.suppress(OSError):
            about = Path(f"/proc/{pid}/fd/{number}").stat()
            if stat.S_ISFIFO(about.st_mode):
                found.setdefault(f"pipe:[{about.st_ino}]", number)
    return found


@contextlib.contextmanager
def inherited(names: Mapping[str, int], caller: int, theirs: Mapping[int, int]) -> Iterator[dict[str, int]]:
    """Give the descriptors that replace the pipes: those of *caller*, by what they are to be."""
    opened: dict[str, int] = {}
    try:
        for name, number in names.items():
            opened[name] = os.open(f"/proc/{caller}/fd/{theirs[number]}", os.O_WRONLY)
        yield opened
    finally:
        for descriptor in opened.values():
            os.close(descriptor)
