"""Sections [groups.NAME] of interleave.toml: groups whose nodes the site declares, for jobs without Slurm."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from slurm_interleave.client.core.config import load_tables
from slurm_interleave.client.core.errors import BadName, ConfigError
from slurm_interleave.client.core.names import parse_group_name

SECTION = "groups"


@dataclass(frozen=True)
class DeclaredGroup:
    """One group. Each field is the documentation of one key."""

    # Names of the nodes that have devices of the group, as [agent] node has them.
    nodes: tuple[str, ...]
    # Indices of its devices on each of these nodes.
    devices: tuple[int, ...]
    # Users whose jobs may register, by name; empty: every user of the nodes.
    users: tuple[str, ...] = ()
    # How long a job may hold the devices while others wait, in seconds; 0: as [turns] max_hold_s says.
    max_hold_s: float = 0.0
    # What policy "priority" counts for its jobs, less the --nice of each.
    priority: int = 0

    def __post_init__(self) -> None:
        """Raise `ConfigError` for what names no device."""
        if not self.nodes or not all(self.nodes):
            raise ConfigError("nodes: at least one node must be named")
        if not self.devices or min(self.devices) < 0:
            raise ConfigError("devices: at least one index, from 0, must be named")
        if not (math.isfinite(self.max_hold_s) and self.max_hold_s >= 0):
            raise ConfigError(f"max_hold_s = {self.max_hold_s}: must be 0 or more")

    def open_to(self, user: str, uid: int) -> bool:
        """Tell whether the user may register jobs."""
        return uid == 0 or not self.users or user in self.users


def load_groups(path: Path | None) -> dict[str, DeclaredGroup]:
    """Return the declared groups by name. Raises `ConfigError`."""
    groups = load_tables(DeclaredGroup, SECTION, path)
    try:
        return {parse_group_name(name): group for name, group in groups.items()}
    except BadName as error:
        raise ConfigError(f"{path}: [{SECTION}.NAME]: {error}") from None
