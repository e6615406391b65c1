"""What a job had of its turns, in one line for Slurm's accounting. No clock, no I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from slurm_interleave.sql.rows import Slice


@dataclass(frozen=True)
class Figures:
    """Sums over the turns of one job; times in seconds."""

    turns: int = 0
    held_s: float = 0.0
    device_s: float = 0.0
    """Time that it held devices, times devices."""
    waited_s: float = 0.0
    switches: int = 0
    switch_s: float = 0.0

    def plus(self, slices: Iterable[Slice], now: float) -> Figures:
        """Return the sums with *slices* too; one that lasts counts up to *now*, one that waits does not."""
        mine = [one for one in slices if one.granted]
        held = [max((one.ended or now) - one.granted, 0.0) for one in mine]
        return Figures(
            self.turns + len(mine),
            self.held_s + sum(held),
            self.device_s + sum(time * len(one.devices) for time, one in zip(held, mine, strict=True)),
            self.waited_s + sum(one.granted - one.requested for one in mine),
            self.switches + sum(one.switched for one in mine),
            self.switch_s + sum(one.switch_s for one in mine),
        )

    def __str__(self) -> str:
        return (
            f"turns={self.turns};held={self.held_s:.1f};device={self.device_s:.1f};"
            f"waited={self.waited_s:.1f};switches={self.switches};switch={self.switch_s:.1f}"
        )
