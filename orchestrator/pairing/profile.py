"""What a workload does, learned from its turns. Values in, values out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.client.core.states import YIELDS, SliceState
from slurm_interleave.sql.rows import Key, Slice

HALF_LIFE_S = 14 * 86400.0  # a turn counts half as much as one that is so much newer
HORIZON_S = 10 * HALF_LIFE_S  # older ones count for less than a thousandth, and are not looked at
LEAST_TURNS = 5  # before that a workload is not known
_ALONE = 3  # so many turns without partners say more than all those with some
# A job that is back within this part of its hold had its next batch ready.
_AT_ONCE = 0.05
_PHASES = 8  # by name


class Phase(NamedTuple):
    """The turns of one name: how long, the standard deviation in parts of that, and how many in each step."""

    name: str
    held_s: float
    spread: float = 0.0
    times: float = 1.0


@dataclass(frozen=True)
class Profile:
    """A workload on one pool of devices; seconds, and bytes on each node."""

    name: str
    period_s: float
    """What a step takes alone (P)."""
    held_s: float
    """For how long of it the devices are needed (b)."""
    spread: float = 0.05
    """The standard deviation of held_s, in parts of it."""
    buffered: bool = False
    """Whether batches are made while the trainer waits, so that a wait costs nothing while some are ready."""
    snapshot_s: float = 0.0
    restore_s: float = 0.0
    context_bytes: int = 0
    nodes: int = 1
    devices: int = 1
    """On each node."""
    phases: tuple[Phase, ...] = ()
    """Of a step with turns of several names: each of them."""
    turns: float = field(default=0.0, compare=False)
    """From how many it was learned, older ones counting less; 0: declared."""

    def __post_init__(self) -> None:
        if not 0 < self.held_s <= self.period_s < 1e9:
            raise BadArgument(
                f"profile {self.name}: held_s {self.held_s} must be more than 0, "
                f"and at most period_s {self.period_s}"
            )
        sizes = (self.spread, self.snapshot_s, self.restore_s, self.context_bytes, self.turns)
        if not all(0 <= size < 1e18 for size in sizes) or min(self.nodes, self.devices) < 1:
            raise BadArgument(f"profile {self.name}: sizes and times must be 0 or more, devices at least 1")

    @cached_property
    def share(self) -> float:
        """Return which part of its time it needs the devices (b / P)."""
        return self.held_s / self.period_s

    @property
    def switch_s(self) -> float:
        """Return what it takes to save its context and bring it back."""
        return self.snapshot_s + self.restore_s

    @property
    def turns_of_step(self) -> float:
        """Return how many turns a step has."""
        return sum(phase.times for phase in self.phases) or 1.0

    @cached_property
    def turn(self) -> Profile:
        """Return this with steps of one turn each, as long as its turns are on average."""
        if self.turns_of_step == 1:
            return self
        held_s, period_s = self.held_s / self.turns_of_step, self.period_s / self.turns_of_step
        return replace(self, held_s=held_s, period_s=period_s, phases=())


def workload_of(row: Slice) -> str:
    """Return the name under which turns are learned: the user's, or account, name, role and devices."""
    name = row.name or row.job_id
    return workload_named(row.profile, row.account, name, row.role, len(row.nodes), _devices(row))


def workload_named(profile: str, account: str, name: str, role: str, nodes: int, devices: int) -> str:
    """Return the name of a workload: what its user calls it, or all of this; *devices* on each of *nodes*."""
    return profile or f"{account or '-'}/{name}/{role or '-'}/{nodes}x{devices}"


def learn(rows: Iterable[Slice], now: float) -> list[Profile]:
    """Return the profile of each workload that has enough turns; *now* in seconds since the Unix epoch.

    Each of *rows* tells of its own context what it tells of moves: see `Moves`.
    """
    found: dict[str, list[Slice]] = {}
    for row in _whole(rows):
        found.setdefault(workload_of(row), []).append(row)
    learned = (_learned(name, turns, now) for name, turns in sorted(found.items()))
    return [profile for profile in learned if profile is not None]


def _whole(rows: Iterable[Slice]) -> Iterator[Slice]:
    """Yield the turns that ended well; of a phase with pauses, one that is as long as all of them."""
    begun: dict[Key, Slice] = {}
    for row in rows:
        first = begun.pop(Key(row.job_id, row.group), None)
        if not (row.granted and row.ended > row.granted and row.state in YIELDS):
            continue
        turn = row if first is None else _joined(first, row)
        if row.state is SliceState.PAUSED:
            begun[Key(row.job_id, row.group)] = turn
        else:
            yield turn


def _joined(first: Slice, last: Slice) -> Slice:
    held = first.ended - first.granted + last.ended - last.granted
    share = min(first.share, last.share)
    return replace(first, state=last.state, granted=last.ended - held, ended=last.ended, share=share)


def _devices(row: Slice) -> int:
    return max(1, len(row.devices) // max(1, len(row.nodes)))


def _learned(name: str, rows: Sequence[Slice], now: float) -> Profile | None:
    if len(rows) < LEAST_TURNS:
        return None
    named: dict[str, list[Slice]] = {}
    for row in rows:
        named.setdefault(row.phase, []).append(row)
    if len(named) > _PHASES:  # who gives each turn a name of its own has one phase
        named = {"": list(rows)}
    weights = {phase: [_weight(row.ended, now) for row in turns] for phase, turns in named.items()}
    steps = max(map(sum, weights.values()))
    phases = [_phase(phase, turns, weights[phase], steps) for phase, turns in named.items()]
    single = [row for row in rows if _is_alone(row)]
    chosen = {id(row) for row in (single if len(single) >= _ALONE else rows) if row.off_s > 0}
    if not chosen:
        return None
    held = sum(phase.times * phase.held_s for phase in phases)
    away = sum(
        phase.times * _usual(((row.off_s, row) for row in named[phase.name] if id(row) in chosen), now)
        for phase in phases
    )
    return Profile(
        name,
        period_s=held + away,
        held_s=held,
        spread=min(1.0, math.hypot(*(phase.times * phase.held_s * phase.spread for phase in phases)) / held),
        buffered=_usual(((row.off_s, row) for row in rows), now) <= _AT_ONCE * held,
        snapshot_s=_usual(((row.snapshot_s, row) for row in rows), now),
        restore_s=_usual(((row.restore_s, row) for row in rows), now),
        context_bytes=int(_usual(((row.switch_bytes / max(1, len(row.nodes)), row) for row in rows), now)),
        nodes=max(1, len(rows[-1].nodes)),
        devices=_devices(rows[-1]),
        turns=sum(map(sum, weights.values())),
        phases=tuple(sorted(phases)) if len(phases) > 1 else (),
    )


def _phase(name: str, turns: Sequence[Slice], weights: Sequence[float], steps: float) -> Phase:
    holds = [row.ended - row.granted for row in turns]
    held = _median(holds, weights)
    return Phase(name, held, min(_spread(holds, weights) / held, 1.0), sum(weights) / steps)


def _is_alone(row: Slice) -> bool:
    """Tell whether a turn had no partners: where there are some, only such tell what a step takes alone.

    An asynchronous job that has waited finds batches ready, so that its time away is short, and says nothing
    of the rate at which it makes them.
    """
    return bool(row.share) and row.share >= len(row.devices) - 1e-6


def _usual(told: Iterable[tuple[float, Slice]], now: float) -> float:
    """Return the median of what turns tell, the newer ones more; one that tells 0 does not say."""
    known = [(value, _weight(row.ended, now)) for value, row in told if value > 0]
    return _median([value for value, _ in known], [weight for _, weight in known]) if known else 0.0


def _spread(values: Sequence[float], weights: Sequence[float]) -> float:
    """Return the standard deviation as the middle two thirds have it: a rare long step changes nothing."""
    return (_below(0.84, values, weights) - _below(0.16, values, weights)) / 2


def _weight(at: float, now: float) -> float:
    return float(0.5 ** (max(0.0, now - at) / HALF_LIFE_S))


def _median(values: Sequence[float], weights: Sequence[float]) -> float:
    return _below(0.5, values, weights)


def _below(part: float, values: Sequence[float], weights: Sequence[float]) -> float:
    """Return the value up to which *part* of the weight lies."""
    ordered = sorted(zip(values, weights, strict=True))
    left = part * sum(weights)
    for value, weight in ordered:
        left -= weight
        if left <= 0:
            return value
    return ordered[-1][0]


def as_text(profiles: Iterable[Profile]) -> list[dict[str, Any]]:
    """Return what `parse` reads, for JSON."""
    return [asdict(profile) for profile in profiles]


def parse(data: Any) -> list[Profile]:
    """Return the profiles of `{"profiles": [...]}`. Raises `BadArgument`."""
    if not isinstance(data, Mapping) or not isinstance(data.get("profiles"), list):
        raise BadArgument('profiles are one JSON object, {"profiles": [...]}; see interleave profile export')
    return [_parsed(entry) for entry in data["profiles"]]


def _parsed(entry: Any) -> Profile:
    known = {field.name: field for field in fields(Profile)}
    if not isinstance(entry, Mapping) or set(entry) - known.keys():
        raise BadArgument(f"profile {entry!r} must be a JSON object with some of {', '.join(known)}")
    kinds = {
        "name": str,
        "buffered": bool,
        "context_bytes": int,
        "nodes": int,
        "devices": int,
        "phases": (list, tuple),
    }
    for name, value in entry.items():
        wanted: Any = kinds.get(name, (int, float))
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
            raise BadArgument(f"profile {entry.get('name')!r}: {name} is {value!r}, which is of a wrong kind")
    try:
        return Profile(**{**entry, "phases": tuple(map(_parsed_phase, entry.get("phases", ())))})
    except TypeError:
        raise BadArgument(f"profile {entry!r} needs name, period_s and held_s") from None


def _parsed_phase(entry: Any) -> Phase:
    good = (
        isinstance(entry, (list, tuple))
        and 2 <= len(entry) <= len(Phase._fields)
        and isinstance(entry[0], str)
    )
    if not good or not all(type(value) in (int, float) and 0 <= value < 1e9 for value in entry[1:]):
        raise BadArgument(f"phase {entry!r} must be a list: {', '.join(Phase._fields)}")
    return Phase(*entry)


def by_name(profiles: Iterable[Profile]) -> dict[str, Profile]:
    """Return *profiles* by name; of two with one name the later counts."""
    return {name: list(own)[-1] for name, own in groupby(sorted(profiles, key=_name), key=_name)}


def _name(profile: Profile) -> str:
    return profile.name
