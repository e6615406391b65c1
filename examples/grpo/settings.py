"""What a run can be told; each field is one option of the command line."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from slurm_interleave.client.core.errors import ConfigError


def _says(text: str, least: int = 1) -> Mapping[str, str | int]:
    return {"help": text, "least": least}


@dataclass(frozen=True)
class Settings:
    """One run: the same settings give the same bits, whatever the timing. Raises `ConfigError`."""

    seed: int = field(default=0, metadata=_says("of the parameters, the prompts and the sampling", 0))
    steps: int = field(default=16, metadata=_says("each is a rollout, its rewards and an update"))
    prompts: int = field(default=64, metadata=_says("prompts in a step"))
    group_size: int = field(default=16, metadata=_says("answers to a prompt, compared with each other", 2))
    digits: int = field(default=4, metadata=_says("digits to sort in a prompt"))
    hidden: int = field(default=1024, metadata=_says("width of the policy; makes the device state large"))
    epochs: int = field(default=2, metadata=_says("passes of an update over its answers"))
    minibatches: int = field(default=4, metadata=_says("Adam updates in a pass"))
    learning_rate: float = field(default=5e-3, metadata=_says("Adam's step size", 0))
    clip: float = field(default=0.2, metadata=_says("how far the importance ratio may move from 1", 0))
    kl: float = field(default=0.0, metadata=_says("weight of the KL to the first policy; 0: none", 0))
    rollout_seconds: float = field(default=0.15, metadata=_says("least time of a rollout on the device", 0))
    train_seconds: float = field(default=0.2, metadata=_says("least time of an update on the device", 0))
    reward_seconds: float = field(default=0.45, metadata=_says("least time of the rewards on the CPU", 0))

    def __post_init__(self) -> None:
        for option in fields(self):
            value, least = getattr(self, option.name), option.metadata["least"]
            if not (math.isfinite(value) and value >= least):
                raise ConfigError(f"{flag(option.name)} {value}: must be a finite number, at least {least}")
        if self.prompts % self.minibatches:
            raise ConfigError(
                f"--prompts {self.prompts} cannot be split into {self.minibatches} equal minibatches; "
                "make it a multiple of --minibatches"
            )

    @property
    def samples(self) -> int:
        """Answers in a step."""
        return self.prompts * self.group_size


def flag(name: str) -> str:
    """Return the command-line option of the field *name*."""
    return "--" + name.replace("_", "-")
