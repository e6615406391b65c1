"""What survives a restart, as SQL has it."""

from __future__ import annotations

from dataclasses import dataclass, field

from slurm_interleave.sql.rows import Key, Lease, Member, Part, Waiter


@dataclass(frozen=True)
class Remembered:
    """What survives a restart."""

    epoch: int
    members: tuple[Member, ...] = ()
    parts: tuple[Part, ...] = ()
    waiters: tuple[Waiter, ...] = ()
    leases: tuple[Lease, ...] = ()
    yielded: dict[Key, int] = field(default_factory=dict)  # epoch of the last lease that a member yielded
