"""Whether a job can be restored whose processes were saved here or elsewhere, and to which devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slurm_interleave.node_agent.backends.cuda.requirements import can_rename

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Place:
    """Where a job is: *every* device of the node by its number and those that are *mine*, as UUIDs.

    *constrained*: whether a job sees its own devices alone; None: that is not known.
    """

    driver: str
    card: str
    constrained: bool | None
    every: tuple[str, ...]
    mine: tuple[str, ...]

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Place:
        """Return one as it was written. Raises `KeyError` and `TypeError`."""
        fields = raw["driver"], raw["card"], raw["constrained"], tuple(raw["every"]), tuple(raw["mine"])
        return cls(*fields)


def pairs(old: Place, new: Place) -> tuple[str, Pairs]:
    """Return why what was saved at *old* cannot be restored at *new*, or the driver's map.

    The map names each device that the processes see, on both sides; it is empty where they are the same.
    """
    if old.driver != new.driver:
        return f"its device state was saved by driver {old.driver}, and here is {new.driver}", ()
    seen = "mine" if new.constrained else "every"
    before, after = getattr(old, seen), getattr(new, seen)
    if old.mine == new.mine and before == after:
        return "", ()
    if why := can_rename(new.driver):
        return why, ()
    if old.constrained is None or old.constrained is not new.constrained:
        return "whether its processes see all devices, there and here, is not known (ConstrainDevices)", ()
    if old.card != new.card or len(before) != len(after) or len(old.mine) != len(new.mine):
        there = f"{len(old.mine)} of {len(before)} {old.card}"
        return f"it was saved on {there}; here it has {len(new.mine)} of {len(after)} {new.card}", ()
    rest = zip(_without(before, old.mine), _without(after, new.mine), strict=True)
    return "", (*zip(old.mine, new.mine, strict=True), *rest)


def _without(every: tuple[str, ...], mine: tuple[str, ...]) -> list[str]:
    return [uuid for uuid in every if uuid not in mine]
