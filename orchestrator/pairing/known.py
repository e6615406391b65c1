"""The profiles that placement goes by: learned while turns end, and declared ones."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from slurm_interleave.client.core.errors import BadArgument, DatabaseFailed
from slurm_interleave.orchestrator.pairing.advice import Advice
from slurm_interleave.orchestrator.pairing.config import PairingConfig
from slurm_interleave.orchestrator.pairing.profile import Profile, by_name, learn, parse, workload_of
from slurm_interleave.sql.rows import Slice
from slurm_interleave.sql.slices import SliceFilter

log = logging.getLogger(__name__)
EVERY_S = 60.0
_FIRST_S = 3 * 86400.0  # so far back is looked at the start
_TURNS = 200  # kept of a workload


def declared(path: Path) -> dict[str, Profile]:
    """Return the profiles that are kept in *path*; none if it is not there. Raises `BadArgument`."""
    try:
        return by_name(parse(json.loads(path.read_text())))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise BadArgument(f"{path} cannot be read: {error}") from error


class Known:
    """Looks at the turns that have ended each `EVERY_S` seconds, each turn once."""

    def __init__(
        self,
        slices: Callable[[SliceFilter], Iterator[Sequence[Slice]]],
        config: PairingConfig,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._slices, self._config, self._clock = slices, config, clock
        self.advice = Advice(rules=config.rules, measure_first=config.measure_first)
        self._turns: defaultdict[str, deque[Slice]] = defaultdict(lambda: deque(maxlen=_TURNS))
        self._seen = clock() - _FIRST_S

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
        for page in self._slices(SliceFilter(start=self._seen)):
            for row in page:
                self._turns[workload_of(row)].append(row)
                self._seen = max(self._seen, row.ended)
        learned = learn((row for turns in self._turns.values() for row in turns), now)
        profiles = {**kept, **by_name(learned)}
        if profiles != self.advice.profiles:
            self.advice = Advice(profiles, self._config.rules, self._config.measure_first)
