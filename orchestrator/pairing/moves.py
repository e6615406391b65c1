"""What moving its own context takes each job. Values in, values out.

A slice tells of a whole switch: the snapshot is that of who had the devices before, the bytes are of both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from slurm_interleave.sql.rows import Key, Slice

_REMEMBERED = 10_000  # jobs; of more, those that have had no turn for the longest are forgotten


class _Told(NamedTuple):
    """What other turns told of a job: its last snapshot since its own turn, and its bytes on all nodes."""

    snapshot_s: float = 0.0
    size: float = 0.0


_NOTHING = _Told()


class Moves:
    """Takes the turns of all jobs in the order of their ends."""

    def __init__(self) -> None:
        self._last: dict[str, Key] = {}  # who had each device last
        self._told: dict[Key, _Told] = {}  # who had the newest turn stands last

    def own(self, row: Slice) -> Slice:
        """Return *row* with the snapshot and the bytes of its own context; 0: nothing tells them."""
        key, size = Key(row.job_id, row.group), float(row.switch_bytes)
        mine = self._told.pop(key, _NOTHING)
        there = next((last for device in row.devices if (last := self._last.get(device, key)) != key), key)
        if row.snapshot_s:
            its = self._told.get(there, _NOTHING).size or size / 2
            its = min(max(size - mine.size, 0) if mine.size else its, size) if row.restore_s else size
            size -= its
            if there != key:
                self._told[there] = _Told(row.snapshot_s, its)
        self._last.update(dict.fromkeys(row.devices, key))
        self._told[key] = _Told(0.0, size or mine.size)
        if len(self._told) > _REMEMBERED:
            del self._told[next(iter(self._told))]
        return replace(row, snapshot_s=mine.snapshot_s, switch_bytes=int(size or mine.size))
