"""Who may come into a group: values in, values out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurm_interleave.orchestrator.placement.plan import Pending, Placement


Fit = Callable[[Sequence[str]], "float | None"]


def unknown(_workloads: Sequence[str]) -> float | None:
    """Say that nothing is known of any workload."""
    return 0.0


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
    accounts: Mapping[str, str] = field(default_factory=dict)
    """The account of each job."""
    workloads: Mapping[str, str] = field(default_factory=dict)
    """What each job does, by a name that profiles have."""
    fit: Fit = unknown
    """What sharing is worth to jobs of these workloads; None: they would lose."""
    _members: defaultdict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))

    def enter(self, placement: Placement) -> None:
        """Note that the job has its place."""
        self._members[placement.group][placement.job_id] = None

    def leave(self, placement: Placement) -> None:
        """Take that back."""
        self._members[placement.group].pop(placement.job_id, None)

    def named(self, prefix: str) -> list[str]:
        """Return the groups with members whose names begin with *prefix*, in the order of opening."""
        return [name for name, members in self._members.items() if members and name.startswith(prefix)]

    def worth(self, job: Pending) -> float | None:
        """Return what it is worth to have *job* in its group; None: they would lose."""
        return self.fit([self.workloads.get(name, "") for name in (*self._members[job.group], job.job_id)])

    def refusal(self, job: Pending) -> str:
        """Return why *job* may not come into its group now; empty if it may."""
        members = self._members[job.group]
        if self.rules.devices and job.devices > self.rules.devices:
            return f"shards are of {self.rules.devices} device of a node, and it asks for {job.devices}"
        if self.rules.size and len(members) >= self.rules.size:
            return f"group {job.group} has {len(members)} members with a place and may have no more"
        if self.rules.by_account and members:
            owner = self.accounts.get(next(iter(members)), "")
            if owner != job.account:
                return f"group {job.group} belongs to account {owner or '(none)'} until its last member ends"
        return ""
