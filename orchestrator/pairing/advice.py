"""With whom a job should share devices, by the profiles that are known. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from slurm_interleave.orchestrator.pairing.choice import choose
from slurm_interleave.orchestrator.pairing.profile import Profile
from slurm_interleave.orchestrator.pairing.rating import NO_LIMIT_H, Candidate, PairingRules, Rater, in_words

_REMEMBERED = 100_000
AUTO = "auto"  # as a group's name: with whom it fits, of those who asked for that too


@dataclass(frozen=True)
class Sharer:
    """A job, as far as it matters to those who would share devices with it."""

    job_id: str
    workload: str = ""
    """The name under which its turns are learned."""
    account: str = ""
    role: str = ""
    nodes: int = 1
    devices: int = 1
    """On each node."""
    epsilon: float | None = None
    """How much slower it may become, as a part; None: as the site says."""
    gpu_type: str = ""
    """The type of GPU that it asks for; empty: any."""
    hours: int = 0
    """For how long it may run from now on; 0: as long as it likes."""

    @property
    def kind(self) -> tuple[str, str]:
        """What partners have the same of, beside the number of devices."""
        return self.role, self.gpu_type


@dataclass(frozen=True)
class Worth:
    """What becomes of some jobs in one group."""

    saved: float = 0.0
    """Device-hours, until the first of them is at its limit; 0 where nothing is known."""
    why: str = ""
    """Why it may not be; empty: it may."""
    numbers: str = ""
    """The forecast, in words."""


@dataclass
class Advice:
    """What the profiles say, by the rules of the site."""

    profiles: Mapping[str, Profile] = field(default_factory=dict)
    rules: PairingRules = field(default_factory=PairingRules)
    measure_first: bool = False
    """Whether a job of which nothing is known has no partners."""

    def __post_init__(self) -> None:
        self._rater = Rater(self.rules)
        self._worth: dict[tuple[Sharer, ...], Worth] = {}

    def context_bytes(self, job: Sharer) -> int:
        """Return what the saved state of *job* takes on each of its nodes; 0: not known."""
        profile = self.profiles.get(job.workload)
        return profile.context_bytes if profile is not None else 0

    def worth(self, jobs: Sequence[Sharer]) -> Worth:
        """Return what becomes of *jobs* as one group; remembered, since those who wait ask in each round."""
        if len(self._worth) > _REMEMBERED:
            self._worth.clear()
        if tuple(jobs) not in self._worth:
            self._worth[tuple(jobs)] = self._rated(jobs)
        return self._worth[tuple(jobs)]

    def _rated(self, jobs: Sequence[Sharer]) -> Worth:
        for one, other in combinations(jobs, 2):
            if why := self.rules.apart(one.account, other.account):
                return Worth(why=why)
        known = [candidate for job in jobs if (candidate := self._candidate(job)) is not None]
        if len(known) < len(jobs):
            return Worth(why=self._not_known(jobs))
        verdict = self._rater.rate(known)
        if not verdict.good:
            return Worth(why=verdict.why or f"it would save {verdict.saved:.1f} device-hours")
        return Worth(verdict.saved, numbers=in_words(verdict))

    def _not_known(self, jobs: Sequence[Sharer]) -> str:
        if not self.measure_first:
            return ""
        job = next(job for job in jobs if job.workload not in self.profiles)
        return f"nothing is known of job {job.job_id} ({job.workload}), which is measured alone first"

    def partners(self, waiting: Sequence[Sharer], seated: Mapping[str, Sharer]) -> dict[str, str]:
        """Return the group that each of *waiting* should be in, so that all together save the most.

        *seated* are jobs that are alone in their group, by its name. Who is not named has no good partner.
        """
        classes: defaultdict[tuple[str, str], list[Candidate]] = defaultdict(list)
        for group, job in (*(("", job) for job in waiting), *seated.items()):
            if (candidate := self._candidate(job)) is not None:
                classes[job.kind].append(replace(candidate, group=group))
        order = {job.job_id: place for place, job in enumerate(waiting)}
        found: dict[str, str] = {}
        for candidates in classes.values():
            for verdict in choose(candidates, self._rater):
                new = [member.job_id for member in verdict.members if not member.group]
                settled = [member.group for member in verdict.members if member.group]
                name = settled[0] if settled else f"{AUTO}-{min(new, key=lambda one: order[one])}"
                found.update(dict.fromkeys(new, name))
        return found

    def _candidate(self, job: Sharer) -> Candidate | None:
        profile = self.profiles.get(job.workload)
        if profile is None:
            return None
        # A name that a user chose says nothing of the size of the job that has it.
        fitted = replace(profile, nodes=job.nodes, devices=job.devices)
        hours = job.hours or NO_LIMIT_H
        return Candidate(job.job_id, fitted, hours, account=job.account, epsilon=job.epsilon)
