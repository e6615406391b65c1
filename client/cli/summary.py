"""What sharing gained and cost, for each group, user, account, partition or day; formulas in `core.gains`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from slurm_interleave.client.cli.fields import (
    BYTES,
    COUNT,
    HOURS,
    MAYBE_SECONDS,
    PERCENT,
    SECONDS,
    TEXT,
    Column,
)
from slurm_interleave.client.cli.rows import Row
from slurm_interleave.client.core.gains import Gain, part, total

KEYS: dict[str, Callable[[Row], str]] = {
    "group": lambda row: row.group,
    "user": lambda row: row.user,
    "account": lambda row: row.account,
    "partition": lambda row: row.partition,
    "day": lambda row: row.day,
}
# Half a device-second: what is less is neither saved nor lost.
_EVEN_S = 0.5


@dataclass(frozen=True)
class Summary:
    """One line; seconds and bytes, or device-seconds in *gain*."""

    name: str
    jobs: int
    turns: int
    switches: int
    faults: int
    waited_s: float
    max_wait_s: float
    switch_s: float
    overhead_s: float
    switch_bytes: int
    foretold: int
    expected_s: float
    missed_s: float
    gain: Gain

    @property
    def result(self) -> str:
        """Say whether sharing saved or lost device-hours."""
        if abs(self.gain.saved) < _EVEN_S:
            return "even"
        return "saved" if self.gain.saved > 0 else "LOST"


def summarize(rows: Iterable[Row], key: str) -> list[Summary]:
    """Return a line for each value of *key*, in order, and one for all where there are several.

    Turns that last or wait are left out: what they gain is known at their end.
    """
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row.end is not None:
            found.setdefault(KEYS[key](row), []).append(row)
    lines = [_line(name, found[name]) for name in sorted(found)]
    if len(found) > 1:
        lines.append(_line("(all)", [row for some in found.values() for row in some]))
    return lines


def _line(name: str, rows: Sequence[Row]) -> Summary:
    return Summary(
        name=name,
        jobs=len({row.job_id for row in rows}),
        turns=sum(row.turns for row in rows),
        switches=sum(row.switches for row in rows),
        faults=sum(row.faults for row in rows),
        waited_s=sum(row.waited_s for row in rows),
        max_wait_s=max(row.max_wait_s for row in rows),
        switch_s=sum(row.switch_s for row in rows),
        overhead_s=sum(row.overhead_s for row in rows),
        switch_bytes=sum(row.switch_bytes for row in rows),
        foretold=sum(row.foretold for row in rows),
        expected_s=sum(row.expected_s for row in rows),
        missed_s=sum(row.missed_s for row in rows),
        gain=total(row.gain for row in rows),
    )


def columns(key: str) -> tuple[Column[Summary], ...]:
    """Return the columns of a summary by *key*."""
    return (Column(key.capitalize(), f"the {key}", TEXT, lambda line: line.name), *_COLUMNS)


_COLUMNS: tuple[Column[Summary], ...] = (
    Column("Jobs", "jobs that had turns", COUNT, lambda line: line.jobs),
    Column("Turns", "turns that ended", COUNT, lambda line: line.turns),
    Column("DeviceHours", "devices times Held", HOURS, lambda line: line.gain.held),
    Column(
        "Exclusive", "device-hours, had each job its own devices", HOURS, lambda line: line.gain.exclusive
    ),
    Column("Occupied", "device-hours that the jobs occupied in fact", HOURS, lambda line: line.gain.occupied),
    Column("SavedHours", "Exclusive less Occupied; below 0: lost", HOURS, lambda line: line.gain.saved),
    Column("Result", "saved, LOST or even", TEXT, lambda line: line.result),
    Column(
        "DutyBefore",
        "DeviceHours of Exclusive",
        PERCENT,
        lambda line: part(line.gain.held, line.gain.exclusive),
    ),
    Column(
        "DutyAfter", "DeviceHours of Occupied", PERCENT, lambda line: part(line.gain.held, line.gain.occupied)
    ),
    Column(
        "Slowdown",
        "waiting that was added to the jobs' time",
        PERCENT,
        lambda line: part(line.gain.waited, line.gain.exclusive),
    ),
    Column("WaitedHours", "job-hours of waiting, switches included", HOURS, lambda line: line.waited_s),
    Column("SwitchHours", "of them, switches", HOURS, lambda line: line.switch_s),
    Column("Overhead", "of them, seconds that no copy took", SECONDS, lambda line: line.overhead_s),
    Column("MaxWait", "longest wait for a turn, seconds", SECONDS, lambda line: line.max_wait_s),
    Column("Foretold", "turns that were told at first how long they wait", COUNT, lambda line: line.foretold),
    Column(
        "Expected",
        "what they were told, mean seconds",
        MAYBE_SECONDS,
        lambda line: part(line.expected_s, line.foretold),
    ),
    Column(
        "WaitError",
        "by which they waited longer or shorter, mean",
        MAYBE_SECONDS,
        lambda line: part(line.missed_s, line.foretold),
    ),
    Column("Switches", "grants that needed a switch", COUNT, lambda line: line.switches),
    Column("SwitchBytes", "bytes that the switches moved", BYTES, lambda line: line.switch_bytes),
    Column("Faults", "turns that ended as device state was lost", COUNT, lambda line: line.faults),
)
DEFAULT = "Jobs,Turns,DutyBefore,DutyAfter,SavedHours,Result,WaitedHours,SwitchHours,Slowdown,WaitError"
