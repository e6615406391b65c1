"""Who of those that wait should be with whom, found anew when somebody comes or goes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from slurm_interleave.orchestrator.pairing.advice import AUTO, Advice, Sharer
from slurm_interleave.orchestrator.placement.groups import Groups
from slurm_interleave.orchestrator.placement.plan import Pending, Placement

_Asked = tuple[Advice, tuple[Sharer, ...], tuple[tuple[str, Sharer], ...]]


class Pairing:
    """Remembers the last answer: a round comes each few seconds, and a thousand jobs take one to pair."""

    def __init__(self) -> None:
        self._asked: _Asked | None = None
        self._partners: Mapping[str, str] = {}

    async def partners(
        self, groups: Groups, pending: Sequence[Pending], book: Iterable[Placement]
    ) -> Mapping[str, str]:
        """Return the groups that jobs which left that open should be in, of those that wait."""
        waiting = tuple(groups.sharer(job.job_id) for job in pending if job.group == AUTO)
        if len(waiting) == 0:
            return {}
        seated = tuple(sorted(groups.alone(book).items(), key=lambda one: one[0]))
        asked = (groups.advice, waiting, seated)
        if asked != self._asked:
            advice = groups.advice
            self._partners = await asyncio.to_thread(advice.partners, waiting, dict(seated))
            self._asked = asked
        return self._partners
