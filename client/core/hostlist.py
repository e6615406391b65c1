"""Slurm's short form for many nodes, such as `n[1-3,7],gpu[01-02]`."""

from __future__ import annotations

import re
from collections.abc import Iterator

_PART = re.compile(r"[^,\[\]]+(?:\[[0-9,-]+\][^,\[\]]*)*")
_RANGES = re.compile(r"\[([0-9,-]+)\]")


def expand(text: str) -> tuple[str, ...]:
    """Return the names that *text* stands for, in its order."""
    return tuple(name for part in _PART.findall(text) for name in _names(part))


def _names(part: str) -> Iterator[str]:
    found = _RANGES.search(part)
    if not found:
        yield part
        return
    for number in _numbers(found[1]):
        yield from _names(part[: found.start()] + number + part[found.end() :])


def _numbers(ranges: str) -> Iterator[str]:
    for item in ranges.split(","):
        first, _, last = item.partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield f"{number:0{len(first)}d}"
