"""The profiles that placement goes by: learned while turns end, and declared ones."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from slurm_interleave.client.core.errors import BadArgument, DatabaseFailed
from slurm_interleave.orchestrator.pairing.advice import Advice
from slurm_interleave.orchestrator.pairing.config import PairingConfig
from slurm_interleave.orchestrator.pairing.declared import declared
from slurm_interleave.orchestrator.pairing.moves import Moves
from slurm_interleave.orchestrator.pairing.profile import (
    HORIZON_S,
    Profile,
    by_name,
    learn,
    workload_of,
)
from slurm_interleave.sql.rows import Slice
from slurm_interleave.sql.slices import SliceFilter

log = logging.getLogger(__name__)
EVERY_S = 60.0
_TURNS = 200  # kept of a workload
WORKLOADS = 1000  # kept; of more, those that have had no turn for the longest are forgotten
# A workload's turns tell the same of these, or nearly: equal values are kept once.
_ALIKE = (
    "job_id", "group", "role", "user", "account", "partition", "name", "backend", "nodes", "devices", "phase",
    "partners", "comment", "profile",
)  # fmt: skip


class Known:
    """Looks at the turns that have ended each `EVERY_S` seconds, each turn once."""

    def __init__(
        self,
        slices: Callable[[SliceFilter], Iterator[Sequence[Slice]]],
        newest: Callable[[float, int, int], Iterator[Sequence[Slice]]],
        config: PairingConfig,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._slices, self._newest, self._config, self._clock = slices, newest, config, clock
        self.advice = Advice(rules=config.rules, measure_first=config.measure_first)
        self._moves = Moves()
        self._turns: dict[str, deque[Slice]] = {}  # who had the newest turn stands last
        self._changed: set[str] = set()  # have turns that nothing was learned from yet
        self._learned: dict[str, Profile] = {}
        self._seen = 0.0  # when the newest turn ended that was looked at

    async def run(self) -> None:
        """Learn until cancelled. What cannot be read is logged, and tried again the next time."""
        while True:
            try:
                await asyncio.to_thread(self.look)
            except (BadArgument, DatabaseFailed) as error:
                log.warning("profiles.failed", extra={"error": str(error)})
            await asyncio.sleep(EVERY_S)

    def look(self) -> None:
        """Take the turns that have ended since the last look. Raises `BadArgument`, `DatabaseFailed`."""
        kept, now = declared(Path(self._config.profiles)), self._clock()
        for page in self._new(now):
            for row in page:
                self._take(row)
        self._changed &= self._turns.keys()
        # Of the others nothing would change: all their turns have become older by the same.
        learned = by_name(learn((row for name in self._changed for row in self._turns[name]), now))
        self._learned = {
            **{
                name: one for name, one in self._learned.items() if name in self._turns.keys() - self._changed
            },
            **learned,
        }
        self._changed.clear()
        profiles = {**kept, **self._learned}
        if profiles != self.advice.profiles:
            self.advice = Advice(profiles, self._config.rules, self._config.measure_first)

    def _new(self, now: float) -> Iterator[Sequence[Slice]]:
        if self._seen:
            return self._slices(SliceFilter(start=self._seen))
        return self._newest(now - HORIZON_S, _TURNS, _TURNS * WORKLOADS)

    def _take(self, row: Slice) -> None:
        name, row = workload_of(row), self._moves.own(row)
        turns = self._turns.pop(name, None) or deque(maxlen=_TURNS)
        if turns:
            last = turns[-1]
            row = replace(row, **{f: value for f in _ALIKE if (value := getattr(last, f)) == getattr(row, f)})
        turns.append(row)
        self._turns[name] = turns
        if len(self._turns) > WORKLOADS:
            del self._turns[next(iter(self._turns))]
        self._changed.add(name)
        self._seen = max(self._seen, row.ended)
