"""Operations by id: under way, or ended with a result; and what stands for one that is not begun."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent.contexts import MOVING, Outcome, Verb
from slurm_interleave.node_agent.state import Job

log = logging.getLogger(__name__)
_KEPT = 1000  # operations that are remembered


@dataclass(frozen=True)
class Result:
    """A finished operation. *bytes* is what the saved context takes, or what came back."""

    outcome: Outcome
    bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class _Kept:
    job: str
    future: asyncio.Future[Result]
    began: float = field(default_factory=time.monotonic)


class Results:
    """All operations that this agent remembers; the oldest are forgotten, but none that is under way."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}  # the oldest first
        self._counts: Counter[str] = Counter()  # by job

    def keep(self, operation: str, job: str, result: asyncio.Future[Result]) -> None:
        """Remember an operation on *job* that begins now."""
        self._kept[operation] = _Kept(job, result)
        self._counts[job] += 1
        if len(self._kept) > _KEPT:
            self._forget_oldest()

    def get(self, operation: str, job: str = "") -> asyncio.Future[Result] | None:
        """Return an operation by its id, finished or not; with *job* only if it is one on that job."""
        kept = self._kept.get(operation)
        return kept.future if kept is not None and job in ("", kept.job) else None

    def seconds(self, operation: str) -> float:
        """Return for how long a known operation has been under way."""
        return time.monotonic() - self._kept[operation].began

    def forget(self, operation: str) -> None:
        """Make the id as good as new."""
        job = self._kept.pop(operation).job
        self._counts[job] -= 1
        if not self._counts[job]:
            del self._counts[job]

    def _forget_oldest(self) -> None:
        """Forget the oldest of the job that has most: no job's calls make those on others be forgotten."""
        most, _ = self._counts.most_common(1)[0]
        ended = (number for number, one in self._kept.items() if one.job == most and one.future.done())
        if oldest := next(ended, ""):
            self.forget(oldest)


async def first_failure(before: Sequence[asyncio.Future[Result]]) -> str:
    """Wait for all of *before*, or for the first that fails; return why, or nothing."""
    if all(result.done() for result in before):
        return next((error for result in before if (error := result.result().outcome.error)), "")
    for ended in asyncio.as_completed([asyncio.shield(result) for result in before]):
        if failed := (await ended).outcome.error:
            return failed
    return ""


def gone(job_id: str, verb: Verb) -> Result:
    """Return the answer for a job that is not here: there is nothing to save, and nothing to bring back."""
    error = f"job {job_id} is not on this node" if verb is Verb.RESTORE else ""
    return Result(Outcome(Context.NONE, error=error))


def occupied(job: Job, jobs: Iterable[Job], context_of: Callable[[Job], Context]) -> str:
    """Return which other of *jobs* is on the devices of *job*, in words; nothing where none is."""
    for other in jobs:
        shared = sorted({*other.request.devices} & {*job.request.devices})
        if other is job or not shared:
            continue
        context = context_of(other)
        if context is Context.RESIDENT or context in MOVING:
            return (
                f"restore: job {other.job_id} is {context.value} on device {shared[0]}; "
                f"job {job.job_id} comes back when it is saved: ask for a turn"
            )
    return ""


def log_move(job_id: str, verb: Verb, mover: str, outcome: Outcome, seconds: float) -> None:
    """Say in the log how an operation ended."""
    fields = {"job": job_id, "backend": mover, "seconds": round(seconds, 4)}
    if outcome.ok:
        log.info(f"{verb.value}.done", extra={**fields, "bytes": outcome.moved})
    else:
        log.warning(f"{verb.value}.failed", extra={**fields, "reason": outcome.error})
