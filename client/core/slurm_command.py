"""One command of Slurm's own: an argument list, no shell, a deadline."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from slurm_interleave.client.core.errors import SlurmFailed


async def run_slurm(argv: Sequence[str], timeout_s: float) -> str:
    """Return the output of *argv*. Raises `SlurmFailed` with its error text, or if it is late.

    Raises `OSError` where there is no such program.
    """
    command = " ".join(argv[:3])
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), timeout_s)
    except asyncio.TimeoutError:
        raise SlurmFailed(f"{command}: no answer within {timeout_s:g} s; is slurmctld up?") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        text = " ".join(err.decode(errors="replace").split())
        raise SlurmFailed(f"{command}: exit code {process.returncode}: {text}")
    return out.decode(errors="replace")
