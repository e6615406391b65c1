"""Colours: a hue for each job, a shade of it for each of its phases."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_interleave.client.wire import interleave_v1_pb2 as pb

# Okabe and Ito's colours, which all common kinds of colour blindness keep apart.
_HUES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
_SHADES = (0.0, 0.5, -0.4, 0.72)  # towards white, or black where negative: the phases of one job


class Palette:
    """The colours of the jobs and phases that occur in some slices."""

    def __init__(self, slices: Sequence[pb.Slice]) -> None:
        self._phases: dict[str, list[str]] = {}
        for item in sorted(slices, key=lambda item: item.requested):
            phases = self._phases.setdefault(item.job_id, [])
            if item.phase not in phases:
                phases.append(item.phase)
        self._ranks = {job: rank for rank, job in enumerate(self._phases)}

    def colour(self, job: str, phase: str) -> str:
        """Return the colour of *phase* of *job*."""
        hue = _HUES[self._ranks[job] % len(_HUES)]
        return _shade(hue, _SHADES[self._phases[job].index(phase) % len(_SHADES)])

    def pale(self, job: str) -> str:
        """Return a light shade of the hue of *job*."""
        return _shade(_HUES[self._ranks[job] % len(_HUES)], 0.6)

    def rank(self, job: str) -> int:
        """Return the place of *job* among the jobs, from 0."""
        return self._ranks[job]


def _shade(colour: str, amount: float) -> str:
    target = 255 if amount > 0 else 0
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(part + (target - part) * abs(amount)):02x}" for part in parts)


def ink_on(colour: str) -> str:
    """Return black or white, whichever reads better on *colour*."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#ffffff" if 0.299 * red + 0.587 * green + 0.114 * blue < 140 else "#111111"
