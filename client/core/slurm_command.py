"""One command of Slurm's own: an argument list, no shell, a deadline."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Mapping, Sequence

from slurm_interleave.client.core.errors import SlurmFailed

# What a user has set for these commands in his shell: squeue would leave jobs out, or ask another cluster.
_FILTERS = ("SQUEUE_", "SINFO_", "SCONTROL_", "SACCT_", "SLURM_CLUSTERS")


class SlurmLate(SlurmFailed):
    """It gave no answer in time; what it was to do may be done."""


async def run_slurm(
    argv: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None, text: str = ""
) -> str:
    """Return the output of *argv*, run on the input *text* with *env* added to the environment.

    Of the environment, what would filter or format the answer is left out.

    Raises `SlurmFailed` with its error text, `SlurmLate`, and `OSError` where there is no such program.
    """
    command = " ".join(argv[:3])
    plain = {name: value for name, value in os.environ.items() if not name.startswith(_FILTERS)}
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE if text else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**plain, **(env or {})},
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(text.encode() or None), timeout_s)
    except asyncio.TimeoutError:
        raise SlurmLate(f"{command}: no answer within {timeout_s:g} s; is slurmctld up?") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        text = " ".join(err.decode(errors="replace").split())
        raise SlurmFailed(f"{command}: exit code {process.returncode}: {text}")
    return out.decode(errors="replace")


def parse_release(text: str) -> tuple[int, int]:
    """Return (major, minor) from what a command of Slurm says of its version, as `slurm-wlm 22.05.8`.

    Raises `SlurmFailed` if there is none in it.
    """
    found = re.search(r"\b(\d+)\.(\d+)", text)
    if not found:
        raise SlurmFailed(f"{text.strip()!r} holds no Slurm release")
    return int(found[1]), int(found[2])
