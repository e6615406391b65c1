"""Section [cuda]: how the driver's checkpoint is used."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from slurm_interleave.client.core.errors import ConfigError

_MIB = 1 << 20
_OURS = "interleave-cuda"


@dataclass(frozen=True)
class CudaConfig:
    """Section [cuda]. Each field is the documentation of one key."""

    # Seconds that the work which a job has given to its devices may take to end; then the job runs on.
    lock_timeout_s: float = 30.0
    # Seconds that freed memory may take to be free.
    release_timeout_s: float = 10.0
    # Free device memory beyond the saved bytes that a restore must find, in MiB of each device.
    headroom_mib: int = 1024
    # What a job that moves its own state may leave on each device, in MiB: the context of each process has
    # some 500, NCCL's buffers 1,000 and more.
    app_keeps_mib: int = 4096
    # A folder in memory for the copies, as /dev/shm: helpers make them, outside of the job's memory. Empty:
    # the driver makes them, in the memory of the job's processes.
    store: str = ""
    # Device memory that a helper's context takes while it copies, in MiB; with `store` alone.
    helper_context_mib: int = 600
    # The program for drivers 550 to 569; later drivers need none.
    checkpoint_program: str = "cuda-checkpoint"
    # Seconds between looks at the devices.
    look_s: float = 5.0

    def __post_init__(self) -> None:
        for key in ("lock_timeout_s", "release_timeout_s", "look_s"):
            seconds = getattr(self, key)
            if not (math.isfinite(seconds) and seconds > 0):
                raise ConfigError(f"[cuda] {key} = {seconds}: must be more than 0 seconds, and finite")
        if self.store and not self.store.startswith("/"):
            raise ConfigError(f"[cuda] store = {self.store!r}: must be the path of a folder, from / on")
        for key in ("headroom_mib", "app_keeps_mib", "helper_context_mib"):
            if getattr(self, key) < 0:
                raise ConfigError(f"[cuda] {key} = {getattr(self, key)}: must be 0 or more")

    @property
    def headroom_bytes(self) -> int:
        """What a restore must find beyond the saved bytes."""
        return self.headroom_mib * _MIB

    @property
    def own_store(self) -> Path | None:
        """The folder that is ours alone, with one for each job; None: the driver makes the copies."""
        return Path(self.store) / _OURS if self.store else None

    @property
    def helper_context_bytes(self) -> int:
        """What a helper's context takes on each device."""
        return self.helper_context_mib * _MIB

    @property
    def app_keeps_bytes(self) -> int:
        """What a job that moves its own state may leave on each device."""
        return self.app_keeps_mib * _MIB
