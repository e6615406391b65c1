"""In which order waiters come. A policy is one small class: it puts waiters in lots, and weighs lots.

The lightest lot comes first, and within a lot who came first. Whoever has waited longer than the ageing time
comes before all others, first come first: so no policy starves anybody, as long as holders yield.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from slurm_interleave.client.core.errors import ConfigError

AGEING_S = 600.0
Lot = float | str


@dataclass(frozen=True)
class Standing:
    """What a policy may know of a waiter."""

    account: str
    priority: int
    resident: bool  # its context is on all its devices: a grant needs no switch
    requested: float = 0.0  # when it asked
    move_s: float = 0.0  # what it took last to save its context and to bring it back; 0: not known


class Policy(ABC):
    """Orders waiters; `in_order` tells whether the order of arrival is all of it."""

    name: ClassVar[str]
    in_order: ClassVar[bool] = False
    lingers: ClassVar[bool] = False  # waits a moment for the last holder rather than switch
    grace: ClassVar[float] = 0.0  # how late it may be, as a part of what it is waited for at most
    saves_early: ClassVar[bool] = False  # a context that is not wanted next is saved at its yield

    def __init__(self, ageing_s: float = AGEING_S) -> None:
        self.ageing_s = ageing_s

    def linger_s(self, move_s: float, limit_s: float) -> float:
        """Return for how long a last holder may stay away if one who lingers is to wait for it.

        *move_s* is what it takes to save its context and bring it back, *limit_s* the site's `linger_s`.
        """
        return limit_s

    @abstractmethod
    def lot(self, standing: Standing) -> Lot:
        """Return the lot of a waiter: a number that is its weight, unless `weight` says otherwise."""

    def weight(self, lot: Lot) -> float:
        """Return what *lot* weighs; the least comes first. It may rise after `held`, and never falls."""
        return float(lot)

    def held(self, account: str, seconds: float, now: float) -> None:  # noqa: B027 - most policies do not care
        """Take note that a lease of *account* ended after *seconds*."""


class Fifo(Policy):
    """First come, first served."""

    name = "fifo"
    in_order = True

    def lot(self, standing: Standing) -> Lot:
        """One for all."""
        return 0.0


class Priority(Policy):
    """The higher priority in Slurm comes first."""

    name = "priority"

    def lot(self, standing: Standing) -> Lot:
        """The priority."""
        return -float(standing.priority)


class LeastSwitching(Policy):
    """Whose context is on the devices comes first, and is waited for a moment if it is expected back soon."""

    name = "least-switching"
    lingers = True

    def lot(self, standing: Standing) -> Lot:
        """Whether a grant needs a switch."""
        return 0.0 if standing.resident else 1.0


class Learned(Policy):
    """First come, first served, but for switches that cost more than they bring, by what was measured.

    Whose context is on the devices passes those who asked up to `AHEAD` times its cost before. It is waited
    for while it is expected back within `GAP` times that cost, if it would then come first. So a waiter is
    passed for a bounded time, without the ageing rule.
    """

    name = "learned"
    lingers = True
    grace = 0.1
    saves_early = True
    GAP: ClassVar[float] = 1.0
    AHEAD: ClassVar[float] = 12.0

    def lot(self, standing: Standing) -> Lot:
        """When it asked, less its lead."""
        return standing.requested - (self.AHEAD * standing.move_s if standing.resident else 0.0)

    def linger_s(self, move_s: float, limit_s: float) -> float:
        """What the switch would cost."""
        return self.GAP * move_s


class FairShare(Policy):
    """The account that held devices least comes first; what was held fades, halved each half-life.

    All accounts fade alike, so their order changes only when one has held again. What is kept does not fade:
    the logarithm of the seconds that, held at time 0, would have left as much.
    """

    name = "fair-share"

    def __init__(self, ageing_s: float = AGEING_S, half_life_s: float = 3600.0) -> None:
        super().__init__(ageing_s)
        self.half_life_s = half_life_s
        self._held: dict[Lot, float] = {}

    def lot(self, standing: Standing) -> Lot:
        """The account."""
        return standing.account

    def weight(self, lot: Lot) -> float:
        """What the account has held."""
        return self._held.get(lot, -math.inf)

    def held(self, account: str, seconds: float, now: float) -> None:
        """Add *seconds* to the account."""
        if seconds <= 0:
            return
        more = math.log2(seconds) + now / self.half_life_s
        small, large = sorted((self._held.get(account, -math.inf), more))
        self._held[account] = large + math.log2(1.0 + 2.0 ** (small - large))


POLICIES: Mapping[str, type[Policy]] = {
    kind.name: kind for kind in (Fifo, Priority, FairShare, LeastSwitching, Learned)
}


def policy_called(name: str, ageing_s: float = AGEING_S) -> Policy:
    """Return a new policy. Raises `ConfigError` for an unknown name."""
    if name not in POLICIES:
        raise ConfigError(f"policy {name!r} is not known; known are {', '.join(POLICIES)}")
    return POLICIES[name](ageing_s)
