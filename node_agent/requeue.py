"""Slurm starts a job again later: asked until it is known whether it will."""

from __future__ import annotations

import asyncio
import logging
import re

from slurm_interleave.client.core.errors import SlurmFailed
from slurm_interleave.client.core.slurm_command import SlurmLate, run_slurm

log = logging.getLogger(__name__)
_REQUEUE_S = 30.0
_AGAIN_S = 5.0
_LATE = "timed out"  # scontrol's own word where slurmctld did not answer in MessageTimeout
# States of `scontrol show job` in which processes of the job are not being ended.
_ALIVE = frozenset({"RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING"})
_STATE = re.compile(r"^\s*JobState=(\w+)", re.MULTILINE)
_RESTARTS = re.compile(r"^\s*Requeue=\d+ Restarts=(\d+)", re.MULTILINE)


async def requeue_in_slurm(job_id: str, restarts: int | None = None) -> None:
    """Have Slurm kill the job and start it again later; nothing outside Slurm.

    *restarts*: of the run that is to end (None: not known). Raises `SlurmFailed` only where Slurm says that
    this run goes on; as long as Slurm does not say, this does not return.
    """
    if not job_id.isdigit():
        return
    while True:
        try:
            await run_slurm(["scontrol", "requeue", job_id], _REQUEUE_S)
        except OSError as error:
            raise SlurmFailed(f"scontrol requeue {job_id}: {error.strerror}") from None
        except SlurmFailed as error:
            if not await _runs_on(job_id, restarts, error):
                return
            if not isinstance(error, SlurmLate) and _LATE not in str(error):
                raise
            # It may be carried out yet.
        else:
            return
        await asyncio.sleep(_AGAIN_S)


async def _runs_on(job_id: str, restarts: int | None, failed: SlurmFailed) -> bool:
    while True:
        if (shown := await _shown(job_id, failed)) is not None:
            return is_running(shown, job_id, restarts)
        await asyncio.sleep(_AGAIN_S)


async def _shown(job_id: str, failed: SlurmFailed) -> str | None:
    """Return what Slurm says of a job: "" if it knows of none, None if it gives no answer."""
    try:
        return await run_slurm(["scontrol", "show", "job", job_id], _REQUEUE_S)
    except (SlurmFailed, OSError) as error:
        if "Invalid job id" in str(error):
            return ""
        log.warning("drain.unsure", extra={"job": job_id, "reason": str(failed), "error": str(error)})
        return None


def is_running(shown: str, job_id: str, restarts: int | None) -> bool:
    """Tell whether, by `scontrol show job`, the run after so many *restarts* (None: any) goes on."""
    # Of the first job of an array it shows the others, too.
    records = [text for text in shown.split("\n\n") if re.match(rf"\s*JobId={job_id}\b", text)]
    state, count = (pattern.search("".join(records)) for pattern in (_STATE, _RESTARTS))
    same = restarts is None or count is None or int(count[1]) == restarts
    return state is not None and state[1] in _ALIVE and same
