"""Section [cuda]: how the driver's checkpoint is used."""

from __future__ import annotations

import math
from dataclasses import dataclass

from slurm_interleave.client.core.errors import ConfigError

_MIB = 1 << 20


@dataclass(frozen=True)
class CudaConfig:
    """Section [cuda]. Each field is the documentation of one key."""

    # Seconds that the work which a job has given to its devices may take to end; then the job runs on.
    lock_timeout_s: float = 30.0
    # Seconds that freed memory may take to be free.
    release_timeout_s: float = 10.0
    # Free device memory beyond the saved bytes that a restore must find, in MiB of each device.
    headroom_mib: int = 1024
    # The program for drivers 555 to 569; later drivers need none.
    checkpoint_program: str = "cuda-checkpoint"
    # Seconds between looks at the devices.
    look_s: float = 5.0

    def __post_init__(self) -> None:
        for key in ("lock_timeout_s", "release_timeout_s", "look_s"):
            seconds = getattr(self, key)
            if not (math.isfinite(seconds) and seconds > 0):
                raise ConfigError(f"[cuda] {key} = {seconds}: must be more than 0 seconds, and finite")
        if self.headroom_mib < 0:
            raise ConfigError(f"[cuda] headroom_mib = {self.headroom_mib}: must be 0 or more")

    @property
    def headroom_bytes(self) -> int:
        """What a restore must find beyond the saved bytes."""
        return self.headroom_mib * _MIB
