"""The site's own turns as a trace: what `sinterleave --json` prints, one object for each slice."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.orchestrator.simulator.program import Cost, Place
from slurm_interleave.orchestrator.simulator.records import Hold

_NUMBERS = ("Requested", "Start", "End", "RestoreTime", "SnapshotTime")


def holds_in(slices: Iterable[Any]) -> list[Hold]:
    """Return the turns that have ended as holds, each pool called after its devices, in order of grants.

    A slice tells what the snapshot of the context took that had to leave for it; here that is the cost of
    the hold before it. Raises `BadArgument`.
    """
    rows = [_checked(row) for row in slices if _ended(row)]
    rows.sort(key=lambda row: float(row["Start"]))
    holds = [_hold(row) for row in rows]
    last: dict[str, int] = {}  # the last turn on each device
    for number, (row, hold) in enumerate(zip(rows, holds, strict=True)):
        for left in {last[device] for device in row["Devices"] if device in last}:
            if row["SnapshotTime"] and holds[left].job != hold.job:
                cost = Cost(row["SnapshotTime"], holds[left].cost.restore_s)
                holds[left] = replace(holds[left], cost=cost)
        last.update(dict.fromkeys(row["Devices"], number))
    return holds


def places_of(holds: Iterable[Hold]) -> dict[str, Place]:
    """Return where the pools of *holds* are: a pool has the same devices on each of its nodes."""
    return {pool: _place(pool.split(",")) for pool in {hold.pool for hold in holds}}


def _ended(row: Any) -> bool:
    """Tell whether a slice is a turn that is over; who waited in vain had none."""
    return not isinstance(row, Mapping) or (row.get("Start"), row.get("End")).count(None) == 0


def _checked(row: Any) -> Mapping[str, Any]:
    try:
        numbers = [row[name] for name in _NUMBERS]
        devices = [device.rpartition("/") for device in row["Devices"]]
        if not devices or not all(node and minor.isdecimal() for node, _, minor in devices):
            raise ValueError(f"Devices {row['Devices']!r}")
        if not isinstance(row["JobID"], str) or not all(map(_is_time, numbers)):
            raise ValueError(", ".join(map(repr, (row["JobID"], *numbers))))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadArgument(
            f"a slice of the trace cannot be read ({error}); make it with: sinterleave --json"
        ) from error
    return row  # type: ignore[no-any-return]


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _place(devices: Sequence[str]) -> Place:
    parts = [device.rpartition("/") for device in devices]
    nodes = dict.fromkeys(node for node, _, _ in parts)
    return Place(tuple(nodes), tuple(sorted({int(minor) for _, _, minor in parts})))


def _hold(row: Mapping[str, Any]) -> Hold:
    pool, cost = ",".join(sorted(row["Devices"])), Cost(0.0, row["RestoreTime"])
    return Hold(row["JobID"], pool, row["Requested"], row["Start"], row["End"], row["End"], cost)
