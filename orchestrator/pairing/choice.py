"""Which jobs share devices: the most device-hours saved, with nobody slower than he bears. Pure.

A group is rated by a rehearsal of its turns. Small sets are solved exactly. Large ones begin with the best
pairs; then some groups at a time are taken apart, and their jobs put together in the best way.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from slurm_interleave.orchestrator.pairing.predict import Forecast, duty_bound, rehearse
from slurm_interleave.orchestrator.pairing.profile import Profile

MOST = 4  # members of a group
_PIECE = 8  # jobs that are solved exactly at a time
# What is looked at: pairs at first, by the number of jobs; pieces after that, by its square.
_PAIRS, _TRIES, _MOST_TRIES = 4_000, 16_000_000, 1_500
# Rehearsals are short, and phases vary: a member is to keep so much of its limit.
_RESERVE = 0.02


@dataclass(frozen=True)
class Candidate:
    """A job that may share its devices."""

    job_id: str
    profile: Profile
    hours: float = 1.0
    """What is left of it, if it ran alone."""
    device_type: str = ""
    account: str = ""
    host_bytes: int = 0
    """Memory of each of its nodes that saved contexts may take; 0: not known, and not checked."""
    epsilon: float | None = None
    """How much slower it may become, as a part; None: as the site says."""
    group: str = ""
    """Where it runs already: it stays there."""


@dataclass(frozen=True)
class PairingRules:
    """What a site allows."""

    epsilon: float = 0.1
    members: int = MOST
    may_share: Callable[[str, str], bool] = lambda _one, _other: True
    """Whether jobs of two accounts may share devices."""

    def apart(self, one: str, other: str) -> str:
        """Return why jobs of two accounts may not share devices; empty if they may."""
        if self.may_share(one, other):
            return ""
        return f"the site lets accounts {one or '(none)'} and {other or '(none)'} share no devices"


@dataclass(frozen=True)
class Verdict:
    """What becomes of a group: device-hours saved, and why not, if it may not be."""

    members: tuple[Candidate, ...]
    saved: float = 0.0
    forecast: Forecast | None = None
    why: str = ""

    @property
    def good(self) -> bool:
        """Whether the group may be, and brings something."""
        return not self.why and self.saved > 0


@dataclass
class Rater:
    """Rates groups, and remembers forecasts: jobs of the same workload do the same."""

    rules: PairingRules = field(default_factory=PairingRules)
    _forecasts: dict[tuple[Profile, ...], Forecast] = field(default_factory=dict)

    def rate(self, members: Sequence[Candidate]) -> Verdict:
        """Return the verdict on *members* as one group."""
        group = tuple(sorted(members, key=lambda member: (member.profile.name, member.job_id)))
        why = self._obstacle(group)
        if why:
            return Verdict(group, why=why)
        forecast = self._forecast(tuple(member.profile for member in group))
        for member, slowdown in zip(group, forecast.slowdowns, strict=True):
            limit = 1 + self._epsilon(member)
            reserve = min(_RESERVE, self._epsilon(member) / 4)
            if slowdown > limit - reserve:
                return Verdict(
                    group,
                    forecast=forecast,
                    why=f"job {member.job_id} would take {slowdown:.2f} times as long; it may take "
                    f"{limit:.2f}, of which {reserve:.2f} is kept in reserve",
                )
        first = group[0].profile
        hours = min(m.hours * s for m, s in zip(group, forecast.slowdowns, strict=True))
        return Verdict(group, first.nodes * first.devices * hours * forecast.gain, forecast)

    def _forecast(self, profiles: tuple[Profile, ...]) -> Forecast:
        if profiles not in self._forecasts:
            self._forecasts[profiles] = rehearse(profiles)
        return self._forecasts[profiles]

    def _epsilon(self, member: Candidate) -> float:
        return self.rules.epsilon if member.epsilon is None else member.epsilon

    def _obstacle(self, group: Sequence[Candidate]) -> str:
        if not 2 <= len(group) <= self.rules.members:
            return f"a group has 2 to {self.rules.members} members, not {len(group)}"
        for one, other in combinations(group, 2):
            why = self._apart(one, other)
            if why:
                return why
        return self._memory(group) or self._losing(group)

    def _apart(self, one: Candidate, other: Candidate) -> str:
        """Return why two jobs cannot be in one group."""
        mine, its = one.profile, other.profile
        if one.device_type != other.device_type:
            return (
                f"jobs {one.job_id} and {other.job_id} want different devices: "
                f"{one.device_type or 'any'} and {other.device_type or 'any'}"
            )
        if (mine.nodes, mine.devices) != (its.nodes, its.devices):
            return (
                f"jobs {one.job_id} and {other.job_id} want {mine.nodes} x {mine.devices} and "
                f"{its.nodes} x {its.devices} devices"
            )
        if one.group and other.group and one.group != other.group:
            return f"jobs {one.job_id} and {other.job_id} run in groups {one.group} and {other.group} already"
        return self.rules.apart(one.account, other.account)

    def _memory(self, group: Sequence[Candidate]) -> str:
        needed = sum(member.profile.context_bytes for member in group)
        there = min((member.host_bytes for member in group if member.host_bytes), default=needed)
        if needed <= there:
            return ""
        return f"their contexts take {needed / 2**30:.0f} GiB on each node, which has {there / 2**30:.0f} GiB"

    def _losing(self, group: Sequence[Candidate]) -> str:
        """Return why a group cannot bring anything, where that is plain without a rehearsal."""
        for member in group:
            profile = member.profile
            away = profile.period_s - profile.held_s
            if away <= 0.01 * profile.period_s:
                return (
                    f"job {member.job_id} leaves its devices alone for {away:.1f} s of each step: "
                    "nothing to share"
                )
            if profile.switch_s >= away and not profile.buffered:
                return (
                    f"job {member.job_id} leaves its devices alone for {away:.1f} s of each step, "
                    f"and moving its context takes {profile.switch_s:.1f} s"
                )
        load = sum(member.profile.share for member in group)
        limit = 1 + max(self._epsilon(member) for member in group)
        if load > limit:
            return f"together they need their devices for {load:.0%} of the time, and may for {limit:.0%}"
        return ""


def choose(
    candidates: Iterable[Candidate], rater: Rater | None = None, *, rounds: int | None = None
) -> list[Verdict]:
    """Return the groups to be made of *candidates*, each with at least two; the others run alone.

    *rounds*: how many pieces are tried again; by default fewer, the more jobs there are.
    """
    rater = rater or Rater()
    found: list[Verdict] = []
    for jobs in _alike(candidates):
        found += _solve_class(jobs, rater, rounds)
    return found


def _alike(candidates: Iterable[Candidate]) -> list[list[Candidate]]:
    """Return the candidates by what devices they want, those with as much left to do beside each other."""
    classes: dict[tuple[str, int, int], list[Candidate]] = {}
    for job in candidates:
        key = (job.device_type, job.profile.nodes, job.profile.devices)
        classes.setdefault(key, []).append(job)
    return [sorted(jobs, key=lambda job: (-job.hours, job.job_id)) for jobs in classes.values()]


def _solve_class(jobs: list[Candidate], rater: Rater, rounds: int | None) -> list[Verdict]:
    if len(jobs) <= _PIECE:
        return exact(jobs, rater)
    groups = _whole(jobs, _greedy(jobs, rater))
    tries = min(_MOST_TRIES, _TRIES // len(jobs) ** 2) if rounds is None else rounds
    dice = random.Random(len(jobs))  # noqa: S311 - it decides no secret
    for _ in range(tries):
        groups = _improved(groups, rater, dice)
    return [group for group in groups if len(group.members) > 1]


def _greedy(jobs: Sequence[Candidate], rater: Rater) -> list[Verdict]:
    """Return pairs of neighbours, the best first."""
    reach = max(_PIECE, _PAIRS // len(jobs))
    pairs = [
        rater.rate((job, other))
        for place, job in enumerate(jobs)
        for other in jobs[place + 1 : place + 1 + reach]
    ]
    found, taken = [], set[str]()
    for pair in sorted(filter(_is_good, pairs), key=lambda pair: -pair.saved):
        names = {member.job_id for member in pair.members}
        if taken.isdisjoint(names):
            found.append(pair)
            taken |= names
    return found


def _is_good(verdict: Verdict) -> bool:
    return verdict.good


def _whole(piece: Sequence[Candidate], groups: Sequence[Verdict]) -> list[Verdict]:
    """Return *groups* and, as groups of one, the jobs of *piece* that are in none."""
    grouped = {member.job_id for group in groups for member in group.members}
    return [*groups, *(Verdict((job,)) for job in piece if job.job_id not in grouped)]


def _improved(groups: list[Verdict], rater: Rater, dice: random.Random) -> list[Verdict]:
    """Take some groups that stand near each other apart, and put their jobs together in the best way."""
    groups = sorted(groups, key=lambda group: -min(member.hours for member in group.members))
    start = dice.randrange(len(groups))
    near = (groups[start:] + groups[:start])[: _PIECE * MOST]
    taken: list[Verdict] = []
    size = 0
    for group in dice.sample(near, len(near)):
        if size + len(group.members) <= _PIECE:
            taken.append(group)
            size += len(group.members)
    jobs = [member for group in taken for member in group.members]
    better = exact(jobs, rater)
    if sum(group.saved for group in better) <= sum(group.saved for group in taken) + 1e-9:
        return groups
    gone = set(map(id, taken))
    return [group for group in groups if id(group) not in gone] + _whole(jobs, better)


def exact(jobs: Sequence[Candidate], rater: Rater) -> list[Verdict]:
    """Return the groups of *jobs* that save the most; the work doubles with each job."""
    good = _good_groups(jobs, rater)
    best: list[tuple[float, tuple[Verdict, ...]]] = [(0.0, ())]
    for mask in range(1, 1 << len(jobs)):
        top = mask.bit_length() - 1
        found = best[mask & ~(1 << top)]
        for members, verdict in good[top]:
            if members & mask == members:
                saved, groups = best[mask & ~members]
                if saved + verdict.saved > found[0]:
                    found = (saved + verdict.saved, (*groups, verdict))
        best.append(found)
    return list(best[-1][1])


def _good_groups(jobs: Sequence[Candidate], rater: Rater) -> list[list[tuple[int, Verdict]]]:
    """Return the groups that may be, as bit masks, by their last job; each part of one may be too."""
    found: list[list[tuple[int, Verdict]]] = [[] for _ in jobs]
    good = {frozenset((place,)) for place in range(len(jobs))}
    for size in range(2, rater.rules.members + 1):
        for places in combinations(range(len(jobs)), size):
            parts = combinations(places, size - 1)
            if all(frozenset(part) in good for part in parts):
                verdict = rater.rate([jobs[place] for place in places])
                if verdict.good:
                    good.add(frozenset(places))
                    found[places[-1]].append((sum(1 << place for place in places), verdict))
    return found


def explain(job: Candidate, others: Iterable[Candidate], rater: Rater) -> list[Verdict]:
    """Return the verdict on *job* with each of *others*, the best first."""
    verdicts = [rater.rate((job, other)) for other in others if other.job_id != job.job_id]
    return sorted(verdicts, key=lambda verdict: (bool(verdict.why), -verdict.saved))


def in_words(verdict: Verdict) -> str:
    """Return a verdict in one line."""
    names = " + ".join(f"{member.job_id} ({member.profile.name})" for member in verdict.members)
    numbers = ""
    if verdict.forecast is not None:
        slow = ", ".join(f"{slowdown:.2f}" for slowdown in verdict.forecast.slowdowns)
        bound = duty_bound([member.profile for member in verdict.members])
        forecast = verdict.forecast
        numbers = (
            f"duty {forecast.duty:.0%} of at most {bound:.0%}, slowdown {slow}, "
            f"switches {forecast.switch_share:.1%}"
        )
    if verdict.why:
        return f"{names}: no: {verdict.why}" + (f" ({numbers})" if numbers else "")
    return f"{names}: saves {verdict.saved:.1f} device-hours; {numbers}"
