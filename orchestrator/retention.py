"""Forgets old slices: at the start and then each day, so little at a time that no handover waits for it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

from slurm_interleave.client.core.errors import DatabaseFailed
from slurm_interleave.orchestrator.core.commands import Drop
from slurm_interleave.sql.store import Store

log = logging.getLogger(__name__)
DAY_S = 86_400.0
# Slices in a transaction: it takes about a millisecond more for them.
_STEP = 20
# Of the time, a step may take one part in so many.
_SHARE = 20


class Retention:
    """Keeps the slices of so many days. Older ones go through the one writer, so no lock is waited for."""

    def __init__(
        self,
        store: Store,
        record: Callable[[Sequence[Drop]], Awaitable[None]],
        keep_days: int,
        clock: Callable[[], float] = time.time,
        every_s: float = DAY_S,
    ) -> None:
        self._store = store
        self._record = record
        self._keep_s = keep_days * DAY_S
        self._clock = clock
        self._every_s = every_s

    async def run(self) -> None:
        """Forget until cancelled; a database that cannot be read is tried again the next time."""
        while True:
            try:
                await self.forget()
            except DatabaseFailed as error:
                log.warning("slices.kept", extra={"reason": str(error)})
            await asyncio.sleep(self._every_s)

    async def forget(self) -> None:
        """Forget the slices that ended too long ago. Raises `DatabaseFailed`."""
        before, forgotten, loop = self._clock() - self._keep_s, 0, asyncio.get_running_loop()
        while old := await loop.run_in_executor(None, self._store.oldest, before, _STEP):
            began = time.monotonic()
            await self._record([Drop(row) for row in old])
            forgotten += len(old)
            await asyncio.sleep(_SHARE * (time.monotonic() - began))
        if forgotten:
            log.info("slices.forgotten", extra={"count": forgotten, "days": self._keep_s / DAY_S})
