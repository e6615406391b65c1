"""What an orchestrator that starts knows of the one before."""

from __future__ import annotations

from dataclasses import replace

from slurm_interleave.orchestrator.core.remembered import Remembered
from slurm_interleave.sql import rows
from slurm_interleave.sql.store import Store


def remembered(store: Store, now: float) -> Remembered:
    """Read all of it. What began later than *now*, by a clock that was set back since, begins now."""
    return Remembered(
        epoch=store.epoch,
        members=tuple(store.all(rows.Member)),
        parts=tuple(store.all(rows.Part)),
        waiters=tuple(
            replace(waiter, requested=min(waiter.requested, now)) for waiter in store.all(rows.Waiter)
        ),
        leases=tuple(
            replace(lease, requested=min(lease.requested, now), granted=min(lease.granted, now))
            for lease in store.all(rows.Lease)
        ),
        yielded=store.last_yields(),
    )
