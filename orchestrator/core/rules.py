"""What a site decides about turns. Each field is the documentation of one key of [turns]."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.client.core.groups import DeclaredGroup
from slurm_interleave.orchestrator.core.policy import AGEING_S, POLICIES

EAGER = ("off", "learned", "always")


@dataclass(frozen=True)
class Rules:
    """Section [turns] of interleave.toml. Durations in seconds; 0 means no limit."""

    # In which order waiters come: fifo, priority, fair-share, least-switching, learned.
    policy: str = "fifo"
    # Whoever has waited this long comes first, whatever the policy says.
    ageing_s: float = AGEING_S
    # With least-switching: how long a last holder may be expected to stay away for it to be waited for.
    linger_s: float = 2.0
    # How long a job may hold its devices while others wait, before it is asked to yield.
    max_hold_s: float = 0.0
    # The same for jobs in single partitions of Slurm, by name.
    max_hold_by_partition: dict[str, float] = field(default_factory=dict)
    # The same for single groups, by name, whatever partition their jobs are in.
    max_hold_by_group: dict[str, float] = field(default_factory=dict)
    # How long after it was asked.
    yield_grace_s: float = 30.0
    # Whether a job that does not yield then is saved under way and queued again; else it is only asked.
    force: bool = False
    # How long the processes that took turns for a job may be gone, while their job lives, before its lease
    # ends; 0: it lasts until the job ends.
    gone_grace_s: float = 30.0
    # Save a context in the background when its job yields and nobody waits: off, always, or learned, that is
    # when by the learned lengths of their phases another job of its devices will ask first.
    eager: str = "off"
    # Leave two contexts on a device that has room for both, as far as their sizes are known.
    co_resident: bool = False

    def __post_init__(self) -> None:
        """Raise `ConfigError` for values that mean nothing."""
        if self.policy not in POLICIES:
            raise ConfigError(
                f"[turns] policy = {self.policy!r} is not known; known are {', '.join(POLICIES)}"
            )
        if self.eager not in EAGER:
            raise ConfigError(f"[turns] eager = {self.eager!r} is not known; known are {', '.join(EAGER)}")
        for key in ("ageing_s", "linger_s", "max_hold_s", "yield_grace_s", "gone_grace_s"):
            _check_seconds(key, getattr(self, key))
        for key in ("max_hold_by_partition", "max_hold_by_group"):
            for name, limit in getattr(self, key).items():
                _check_seconds(f"{key}: {name}", limit)

    def max_hold_of(self, group: str, partition: str = "") -> float:
        """Return a job's limit in seconds: its group's, else its partition's, else that of all; 0: none."""
        limit = self.max_hold_by_partition.get(partition, self.max_hold_s)
        return float(self.max_hold_by_group.get(group, limit))


def _check_seconds(what: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ConfigError(f"[turns] {what} = {value!r}: must be a number of seconds, 0 or more")


def with_groups(rules: Rules, groups: Mapping[str, DeclaredGroup]) -> Rules:
    """Return *rules* with the limits of declared groups. Raises `ConfigError` where both name one."""
    limits = {name: group.max_hold_s for name, group in groups.items() if group.max_hold_s}
    twice = sorted(limits.keys() & rules.max_hold_by_group)
    if twice:
        raise ConfigError(
            f"group {twice[0]} has a limit in [turns] max_hold_by_group and in "
            f"[groups.{twice[0]}] max_hold_s; remove one"
        )
    return replace(rules, max_hold_by_group={**rules.max_hold_by_group, **limits})
