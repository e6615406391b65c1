"""Intervals in which a device computed, as the simulated devices record them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm_interleave.client.core.errors import BadArgument


@dataclass(frozen=True)
class Work:
    """One interval of work; *start* and *end* in seconds since the epoch."""

    start: float
    end: float
    job: str
    name: str
    device: str  # node/index, or the index alone


def read_work(path: Path | str) -> list[Work]:
    """Return the intervals in *path*, one JSON object a line.

    A last line that is still being written is left out. Raises `BadArgument` with the line's number,
    `OSError` if the file cannot be read.
    """
    text = Path(path).read_text(encoding="utf-8", errors="replace")
    lines = text[: text.rfind("\n") + 1].splitlines()
    return [_parse(line, f"{path}: line {number}") for number, line in enumerate(lines, 1) if line.strip()]


def busy_s(work: Iterable[Work]) -> float:
    """Return the length of the union of the intervals in seconds."""
    total, reached = 0.0, float("-inf")
    for item in sorted(work, key=lambda item: item.start):
        total += max(0.0, item.end - max(item.start, reached))
        reached = max(reached, item.end)
    return total


def place(item: Work, lanes: Sequence[str], of_job: Sequence[str]) -> str:
    """Return the device of *lanes* on which *item* ran, or its own word where none fits.

    A simulated device knows its index alone, so the devices of the job (*of_job*) tell which node is meant.
    """
    if item.device in lanes:
        return item.device
    index = _index(item.device)
    for candidates in (of_job, lanes):
        fitting = [lane for lane in candidates if _index(lane) == index]
        if len(fitting) == 1:
            return fitting[0]
    return item.device


def _index(device: str) -> str:
    head = device.rstrip("0123456789")
    return device[len(head) :]


def _parse(line: str, where: str) -> Work:
    try:
        data = json.loads(line)
        return Work(
            float(data["start"]), float(data["end"]), str(data["job"]), str(data["name"]), str(data["device"])
        )
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BadArgument(
            f"{where} is not an interval of work (start, end, job, name, device): {error!r}"
        ) from None
