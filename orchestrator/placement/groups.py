"""Who may come into a group: values in, values out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from slurm_interleave.orchestrator.pairing.advice import AUTO, Advice, Sharer, Worth

if TYPE_CHECKING:
    from slurm_interleave.orchestrator.placement.plan import Pending, Placement

_AUTO = f"{AUTO}-"
_REASONS = 2  # why other groups are no good, told to a job that waits


@dataclass(frozen=True)
class GroupRules:
    """What a site decides about groups."""

    size: int = 0
    """How many members have their place at a time; 0: as many as there are seats."""
    devices: int = 0
    """How many devices of a node a job may have; 0: any number."""
    by_account: bool = False
    """Whether a group's name belongs to the account that opened it, until its last member ends."""


@dataclass
class Groups:
    """The members of each group that have their place, in the order in which they came."""

    rules: GroupRules = field(default_factory=GroupRules)
    jobs: Mapping[str, Sharer] = field(default_factory=dict)
    """What is known of each job."""
    advice: Advice = field(default_factory=Advice)
    partners: Mapping[str, str] = field(default_factory=dict)
    """The groups that jobs which left that open should be in, by `Advice.partners`."""
    host_bytes: Mapping[str, int] = field(default_factory=dict)
    """What of each node's memory saved state may take; a node that is not named is not looked at."""
    _members: defaultdict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    _on_node: defaultdict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    _no_good: dict[str, list[str]] = field(default_factory=dict)

    def enter(self, placement: Placement) -> None:
        """Note that the job has its place."""
        self._members[placement.group][placement.job_id] = None
        for node in placement.nodes:
            self._on_node[node][placement.job_id] = placement.group

    def leave(self, placement: Placement) -> None:
        """Take that back."""
        self._members[placement.group].pop(placement.job_id, None)
        for node in placement.nodes:
            self._on_node[node].pop(placement.job_id, None)

    def anew(self, book: Iterable[Placement]) -> Groups:
        """Return the same with who is in the *book*, for another thread to ask."""
        fresh = Groups(self.rules, self.jobs, replace(self.advice), self.partners, self.host_bytes)
        for placement in book:
            fresh.enter(placement)
        return fresh

    def members(self, name: str) -> list[str]:
        """Return who is in a group."""
        return list(self._members[name])

    def found(self) -> list[str]:
        """Return the groups with members that were found for them, in the order of opening."""
        return [name for name, members in self._members.items() if members and name.startswith(_AUTO)]

    def alone(self, book: Iterable[Placement]) -> dict[str, Sharer]:
        """Return the jobs of the *book* that are alone in a group which was found for them, by the group."""
        members: defaultdict[str, list[str]] = defaultdict(list)
        for placement in book:
            if placement.group.startswith(_AUTO):
                members[placement.group].append(placement.job_id)
        return {name: self.sharer(jobs[0]) for name, jobs in members.items() if len(jobs) == 1}

    def worth(self, job: Pending, place: Placement) -> Worth:
        """Return what becomes of *job* and the group that it would have *place* in."""
        return self.together([*self._members[job.group], job.job_id], place)

    def together(self, members: Sequence[str], place: Placement) -> Worth:
        """Return what becomes of *members* in one group that has *place*."""
        worth = self.advice.worth([self.sharer(name) for name in members])
        return worth if worth.why else Worth(worth.saved, self._too_large(members, place), worth.numbers)

    def forecast(self, placement: Placement) -> str:
        """Return in words what is expected of the group that was found for a job; empty: nothing is known."""
        members = self._members[placement.group]
        if len(members) < 2 or not placement.group.startswith(_AUTO):
            return ""
        return self.advice.worth([self.sharer(name) for name in members]).numbers

    def no_good(self, job: Pending, reasons: Iterable[str]) -> None:
        """Note why no group is good for a job, which may have to wait for devices of its own."""
        self._no_good[job.job_id] = list(reasons)

    def refusal(self, job: Pending) -> str:
        """Return why *job* may not come into its group now, or why no group is good; empty if neither is."""
        if job.group == AUTO:
            return self._nowhere(job)
        members = self._members[job.group]
        if self.rules.devices and job.devices > self.rules.devices:
            return f"shards are of {self.rules.devices} device of a node, and it asks for {job.devices}"
        if self.rules.size and len(members) >= self.rules.size:
            return f"group {job.group} has {len(members)} members with a place and may have no more"
        # Who may share in the groups that are found is `[pairing] share`'s matter.
        if self.rules.by_account and members and not job.group.startswith(_AUTO):
            owner = self.sharer(next(iter(members))).account
            if owner != job.account:
                return f"group {job.group} belongs to account {owner or '(none)'} until its last member ends"
        return ""

    def _nowhere(self, job: Pending) -> str:
        reasons = self._no_good.get(job.job_id, [])
        if not reasons:
            return ""
        told = ", ".join(reasons[:_REASONS])
        more = f", and {len(reasons) - _REASONS} more groups" if len(reasons) > _REASONS else ""
        return f"no devices are free for it alone, and no group is good for it: {told}{more}"

    def sharer(self, name: str) -> Sharer:
        """Return what is known of a job, or of a task by that of its array."""
        known = self.jobs.get(name) or self.jobs.get(name.partition("_")[0])
        return Sharer(name) if known is None else replace(known, job_id=name)

    def _too_large(self, members: Sequence[str], place: Placement) -> str:
        """Return on which node the saved state of all who take turns would not fit."""
        for node in place.nodes:
            room = self.host_bytes.get(node, 0)
            saved = {name for name, group in self._on_node[node].items() if len(self._members[group]) > 1}
            needed = sum(self.advice.context_bytes(self.sharer(name)) for name in saved.union(members))
            if room and needed > room:
                return (
                    f"saved state on node {node} would take {needed / 2**30:.1f} GiB of host memory, "
                    f"and there may be {room / 2**30:.1f} GiB"
                )
        return ""
