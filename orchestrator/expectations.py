"""What waiters were told of their wait, and how far that was from what came."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from slurm_interleave.orchestrator.core.core import Core
from slurm_interleave.orchestrator.core.events import CallId
from slurm_interleave.orchestrator.core.forecast import LOOKED_AT
from slurm_interleave.sql.rows import Key, Lease


class Expectations:
    """Asks the core's forecast when somebody is told his place; remembers the first answer of each wait."""

    def __init__(self, core: Core, clock: Callable[[], float]) -> None:
        self._core = core
        self._clock = clock

    def of(self, calls: Iterable[CallId]) -> Mapping[CallId, float]:
        """Return the seconds until the grant, for those of *calls* of whom they are known."""
        state, now = self._core.state, self._clock()
        members = {call: state.attached.member(call) for call in calls}
        keys = {call: key for call, key in members.items() if key is not None}
        waits = self._core.forecast.waits(dict.fromkeys(keys.values()), now, LOOKED_AT)
        for key, wait_s in waits.items():
            asked = state.waiters[key].requested
            if state.foretold.get(key, (None,))[0] != asked:
                state.foretold[key] = asked, now + wait_s
        return {call: waits[key] for call, key in keys.items() if key in waits}

    def missed_s(self, lease: Lease) -> float | None:
        """Return by how many seconds the grant was later than was told first; None: nothing was."""
        asked, expected = self._core.state.foretold.get(Key(lease.job_id, lease.group), (None, 0.0))
        return lease.granted - expected if asked == lease.requested else None
