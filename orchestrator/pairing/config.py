"""Section [pairing] of interleave.toml."""

from __future__ import annotations

from dataclasses import dataclass, replace

from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.orchestrator.pairing.rating import MOST, PairingRules


@dataclass(frozen=True)
class PairingConfig:
    """Each field is one key. Raises `ConfigError` for values that mean nothing."""

    epsilon: float = 0.1
    """How much slower a job may become, as a part of what it takes alone."""
    members: int = MOST
    """How many jobs share devices, at most."""
    share: tuple[str, ...] = ()
    """Accounts that may share devices with each other, as in `physics+chemistry`; `*`: all may.

    Jobs of one account always may."""
    measure_first: bool = True
    """Whether a job of `auto` has no partners while nothing is known of its workload."""
    profiles: str = "/var/lib/interleave/profiles.json"
    """Where declared and imported profiles are kept."""

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < 100 or not 2 <= self.members <= MOST:
            raise ConfigError(
                f"[pairing] epsilon {self.epsilon} must be 0 or more, members {self.members} from 2 to {MOST}"
            )

    def seated(self, members: int) -> PairingConfig:
        """Return this where no more than *members* jobs can share a device."""
        return replace(self, members=max(2, min(self.members, members)))

    @property
    def rules(self) -> PairingRules:
        """What the choice keeps to."""
        return PairingRules(self.epsilon, self.members, self._may_share)

    def _may_share(self, one: str, other: str) -> bool:
        return one == other or any(
            words == "*" or {one, other} <= {word.strip() for word in words.split("+")}
            for words in self.share
        )
