"""Section [sim]: how the simulated devices of one node are made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slurm_interleave.client.core.errors import ConfigError

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class SimConfig:
    """Section [sim]. Each field is the documentation of one key."""

    # Folder on tmpfs that holds the devices of one node; %n is replaced by the node's name.
    directory: Path = Path("/dev/shm/interleave-sim")  # noqa: S108 - shared on purpose, and made for that
    # Number of devices.
    devices: int = 2
    # Memory of each device, in MiB.
    memory_mib: int = 256
    # Speed from the device to host memory, in GiB/s; 0: as fast as it goes.
    snapshot_gib_s: float = 0.0
    # Speed from host memory to the device, in GiB/s; 0: as fast as it goes.
    restore_gib_s: float = 0.0

    def __post_init__(self) -> None:
        for key in ("devices", "memory_mib"):
            if getattr(self, key) < 1:
                raise ConfigError(f"[sim] {key} = {getattr(self, key)}: must be at least 1")
        for key in ("snapshot_gib_s", "restore_gib_s"):
            if getattr(self, key) < 0:
                raise ConfigError(f"[sim] {key} = {getattr(self, key)}: must be 0 (no limit) or more")

    @property
    def memory_bytes(self) -> int:
        """Memory of each device in bytes."""
        return self.memory_mib * MIB
