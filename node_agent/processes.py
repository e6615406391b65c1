"""The processes of a job on this node: those that were started with its id in their environment."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from pathlib import Path


def of_jobs(jobs: Iterable[str], proc: Path = Path("/proc")) -> dict[str, list[int]]:
    """Return the process ids of each of *jobs*. The agent sees all only if it is root.

    Raises `OSError` where it cannot look, which does not mean that there are none.
    """
    wanted = {f"INTERLEAVE_JOB_ID={job}".encode(): job for job in jobs}
    found: dict[str, list[int]] = {job: [] for job in wanted.values()}
    for folder in proc.iterdir() if wanted else ():
        if folder.name.isdigit():
            job = _job_of(folder, wanted)
            if job is not None:
                found[job].append(int(folder.name))
    return found


def _job_of(folder: Path, wanted: dict[bytes, str]) -> str | None:
    try:
        variables = (folder / "environ").read_bytes().split(b"\0")
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        return None  # it has ended, or is another user's
    return next((wanted[variable] for variable in variables if variable in wanted), None)
