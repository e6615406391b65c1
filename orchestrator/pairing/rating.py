"""What becomes of jobs that share devices: device-hours saved, or why they may not. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from slurm_interleave.orchestrator.pairing.predict import Forecast, duty_bound, rehearse
from slurm_interleave.orchestrator.pairing.profile import Profile

MOST = 4  # members of a group
NO_LIMIT_H = 365 * 24.0  # as what is left of a job without time limit: more than of those with one
# Rehearsals are short, and phases vary: a member is to keep so much of its limit.
_RESERVE = 0.02
# So much less than on average jobs may wait whose steps fall into step, as a part of what a step takes.
_IN_STEP = 0.1


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

    @property
    def devices(self) -> int:
        """How many it has on all its nodes."""
        return self.profile.nodes * self.profile.devices


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
    rehearsed: int = 0
    """How many groups were rehearsed."""
    _forecasts: dict[tuple[tuple[Profile, float], ...], Forecast] = field(default_factory=dict)

    def rate(self, members: Sequence[Candidate]) -> Verdict:
        """Return the verdict on *members* as one group."""
        group = tuple(sorted(members, key=lambda member: (member.profile.name, member.job_id)))
        why = self._obstacle(group)
        if why:
            return Verdict(group, why=why)
        forecast = self._forecast(group)
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
        hours = min(m.hours * s for m, s in zip(group, forecast.slowdowns, strict=True))
        return Verdict(group, group[0].devices * hours * forecast.gain, forecast)

    def most(self, members: Sequence[Candidate]) -> float:
        """Return what *members* save as one group at most, without a rehearsal; 0 if they plainly may not.

        Of n members the one with the fewest hours left, h, goes on s times as slow: for h s hours at most
        they save what n - 1 others and 1 / s of it are worth, less one.
        """
        load = patience = 0.0
        first = members[0]
        for member in members:
            load += member.profile.share
            patience = max(patience, self._epsilon(member))
            if member.hours < first.hours:
                first = member
        if load > 1 + patience or self._memory(members):
            return 0.0
        if any(self._apart(*pair) for pair in combinations(members, 2)):
            return 0.0
        others = len(members) - 2
        return first.devices * first.hours * (1 + others * (1 + self._epsilon(first)))

    def bearable(self, members: Sequence[Candidate]) -> bool:
        """Tell whether *members* are likely to bear each other, by the wait that each would have on average.

        Who asks at any time finds another in the middle of its hold for b / P of the time. Jobs whose steps
        fall into step wait less, and those with batches in stock lose nothing.
        """
        profiles = [member.profile.turn for member in members]
        waits = sum(profile.held_s * profile.share / 2 for profile in profiles)
        saves = sum(profile.snapshot_s for profile in profiles)
        for member, profile in zip(members, profiles, strict=True):
            wait = waits - profile.held_s * profile.share / 2 + profile.restore_s
            wait += (saves - profile.snapshot_s) / (len(members) - 1)
            if not profile.buffered and wait > (self._epsilon(member) + _IN_STEP) * profile.period_s:
                return False
        return True

    def alone(self, member: Candidate) -> str:
        """Return why *member* cannot gain by any company; empty if it can."""
        profile = member.profile
        away = profile.period_s - profile.held_s
        if away <= 0.01 * profile.period_s:
            return (
                f"job {member.job_id} leaves its devices alone for {away:.1f} s of each step: "
                "nothing to share"
            )
        moves_s = profile.turns_of_step * profile.switch_s
        if moves_s >= away and not profile.buffered:
            return (
                f"job {member.job_id} leaves its devices alone for {away:.1f} s of each step, "
                f"and moving its context takes {moves_s:.1f} s"
            )
        return ""

    def _forecast(self, group: Sequence[Candidate]) -> Forecast:
        members = tuple((member.profile, 1 + self._epsilon(member)) for member in group)
        if members not in self._forecasts:
            profiles, bearable = zip(*members, strict=True)
            self._forecasts[members] = rehearse(profiles, bearable)
            self.rehearsed += 1
        return self._forecasts[members]

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
            if why := self.alone(member):
                return why
        return self._overload(group)

    def _overload(self, group: Sequence[Candidate]) -> str:
        load = sum(member.profile.share for member in group)
        limit = 1 + max(self._epsilon(member) for member in group)
        if load > limit:
            return f"together they need their devices for {load:.0%} of the time, and may for {limit:.0%}"
        return ""


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
    if min(member.hours for member in verdict.members) >= NO_LIMIT_H and verdict.forecast is not None:
        return f"{names}: saves {verdict.members[0].devices * verdict.forecast.gain:.1f} devices; {numbers}"
    return f"{names}: saves {verdict.saved:.1f} device-hours; {numbers}"
