"""In which order waiters come. A policy is one small class: a rank, the smallest comes first.

Whoever has waited longer than the ageing time comes before all others, first come first: so no policy starves
anybody, as long as holders yield.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.sql.rows import Waiter

AGEING_S = 600.0


@dataclass(frozen=True)
class Standing:
    """What a policy may know of a waiter."""

    account: str
    priority: int
    resident: bool  # its context is on all its devices: a grant needs no switch


class Policy(ABC):
    """Ranks waiters; `in_order` tells whether the order of arrival is the whole rank."""

    name: ClassVar[str]
    in_order: ClassVar[bool] = False
    lingers: ClassVar[bool] = False  # waits a moment for the last holder rather than switch

    def __init__(self, ageing_s: float = AGEING_S) -> None:
        self.ageing_s = ageing_s

    def rank(self, waiter: Waiter, standing: Standing, now: float) -> tuple[float, ...]:
        """Return the rank of *waiter* at *now*; smaller comes first, and no two are equal."""
        aged = now - waiter.requested >= self.ageing_s
        return (0.0, waiter.seq) if aged else (1.0, *self.weigh(standing, now), waiter.seq)

    @abstractmethod
    def weigh(self, standing: Standing, now: float) -> tuple[float, ...]:
        """Return what counts before the order of arrival."""

    def held(self, account: str, seconds: float, now: float) -> None:  # noqa: B027 - most policies do not care
        """Take note that a lease of *account* ended after *seconds*."""


class Fifo(Policy):
    """First come, first served."""

    name = "fifo"
    in_order = True

    def weigh(self, standing: Standing, now: float) -> tuple[float, ...]:
        """Nothing."""
        return ()


class Priority(Policy):
    """The higher priority in Slurm comes first."""

    name = "priority"

    def weigh(self, standing: Standing, now: float) -> tuple[float, ...]:
        """The priority."""
        return (-float(standing.priority),)


class LeastSwitching(Policy):
    """Whose context is on the devices comes first, and is waited for a moment if it is expected back soon."""

    name = "least-switching"
    lingers = True

    def weigh(self, standing: Standing, now: float) -> tuple[float, ...]:
        """Whether a grant needs a switch."""
        return (0.0 if standing.resident else 1.0,)


@dataclass
class _Usage:
    seconds: float = 0.0
    at: float = 0.0


@dataclass
class _Usages:
    by_account: dict[str, _Usage] = field(default_factory=dict)


class FairShare(Policy):
    """The account that held devices least comes first; what was held fades, halved each half-life."""

    name = "fair-share"

    def __init__(self, ageing_s: float = AGEING_S, half_life_s: float = 3600.0) -> None:
        super().__init__(ageing_s)
        self.half_life_s = half_life_s
        self._usages = _Usages()

    def weigh(self, standing: Standing, now: float) -> tuple[float, ...]:
        """What the account has held lately, in seconds."""
        return (self._faded(standing.account, now),)

    def held(self, account: str, seconds: float, now: float) -> None:
        """Add *seconds* to the account."""
        faded = self._faded(account, now)
        self._usages.by_account[account] = _Usage(faded + seconds, now)

    def _faded(self, account: str, now: float) -> float:
        usage = self._usages.by_account.get(account)
        if usage is None:
            return 0.0
        return usage.seconds * math.pow(0.5, max(now - usage.at, 0.0) / self.half_life_s)


POLICIES: Mapping[str, type[Policy]] = {
    kind.name: kind for kind in (Fifo, Priority, FairShare, LeastSwitching)
}


def policy_called(name: str, ageing_s: float = AGEING_S) -> Policy:
    """Return a new policy. Raises `ConfigError` for an unknown name."""
    if name not in POLICIES:
        raise ConfigError(f"policy {name!r} is not known; known are {', '.join(POLICIES)}")
    return POLICIES[name](ageing_s)
