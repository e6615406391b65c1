"""Section [pairing] of interleave.toml."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.orchestrator.pairing.choice import MOST, PairingRules


@dataclass(frozen=True)
class PairingConfig:
    """Each field is one key. Raises `ConfigError` for values that mean nothing."""

    epsilon: float = 0.1
    """How much slower a job may become, as a part of what it takes alone."""
    members: int = MOST
    """How many jobs share devices, at most."""
    same_account: bool = False
    """Whether jobs share devices with those of their own account alone."""
    profiles: str = "/var/lib/slurm-interleave/profiles.json"
    """Where declared and imported profiles are kept."""

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < 100 or not 2 <= self.members <= MOST:
            raise ConfigError(
                f"[pairing] epsilon {self.epsilon} must be 0 or more, members {self.members} from 2 to {MOST}"
            )

    @property
    def rules(self) -> PairingRules:
        """What the choice keeps to."""
        return PairingRules(self.epsilon, self.members, _same if self.same_account else _any)


def _same(one: str, other: str) -> bool:
    return one == other


def _any(_one: str, _other: str) -> bool:
    return True
