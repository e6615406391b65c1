"""For how long a job has not used its devices: for `interleave run`, whose program does not say so itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator

from slurm_interleave.client.core.errors import WrongState
from slurm_interleave.node_agent.movers import Movers
from slurm_interleave.node_agent.state import Job

_EVERY_S = 0.5  # what NVML tells of the processes is of the last second


async def idle_times(job: Job, movers: Movers) -> AsyncGenerator[float, None]:
    """Yield, again and again, for how many seconds *job* has been idle since this began.

    Raises `WrongState` where that cannot be seen, or where its program would go on without its devices.
    """
    used = time.monotonic()
    while True:
        if why := _refuses(job, movers):
            raise WrongState(f"job {job.job_id}: {why}")
        try:
            idle = await movers.backend.idle(job.job_id, job.request.devices)
        except OSError:  # it may have worked meanwhile
            idle = False
        if idle is None:
            raise WrongState(f"job {job.job_id}: NVML does not say whether its devices are idle")
        now = time.monotonic()
        used = used if idle else now
        yield now - used
        await asyncio.sleep(_EVERY_S)


def _refuses(job: Job, movers: Movers) -> str:
    backend, mover = movers.backend, movers.of(job.job_id)
    if not backend.pauses:
        return (
            f"backend {backend.name} does not stop a program whose state is saved; "
            "one that does not know of turns would go on without its devices. The cuda backend does"
        )
    if mover is not None:
        return f"its state is moved by {mover.name}, which leaves the program running without its devices"
    if len(job.request.nodes) > 1:
        return f"it has {len(job.request.nodes)} nodes, and whether all are idle is not seen on one"
    return ""
