"""Section [placement] of interleave.toml."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.orchestrator.placement.groups import GroupRules
from slurm_interleave.orchestrator.placement.plan import Lane

_MODES = ("lane", "token", "shard")
_OWNERS = ("account", "cluster")
_GATEWAYS = ("auto", "commands", "pyslurm")
_MORE = "more than 0"
_LEAST = {"group_size": "", "compare_s": "", "requeue_faulted": "", "poll_s": _MORE, "away_s": _MORE}


@dataclass(frozen=True)
class PlacementConfig:
    """Each field is one key. Raises `ConfigError` for values that do not go together."""

    enabled: bool = False
    """Whether this orchestrator places jobs through Slurm."""
    mode: str = "lane"
    """`lane`: one GRES name for each lane; `token`: one name, counted; `shard`: Slurm's own shards of GPUs.

    Shards are for jobs of one device on each node, and Slurm from 24.11. The type of each GPU is its index:
    `Gres=gpu:g0:1,gpu:g1:1,shard:4`."""
    gres: tuple[str, ...] = ("ilva", "ilvb")
    """The names of the shared GRES: as many as members in mode lane, else one."""
    members: int = 2
    """How many jobs share a device, at most."""
    poll_s: float = 2.0
    """Seconds between two looks at Slurm's queue."""
    away_s: float = 30.0
    """Seconds that the agent of a node may be away before jobs that wait to start there go elsewhere."""
    compare_s: float = 10.0
    """Seconds between two looks at whether Slurm counts the shared GRES as the book does; 0: never."""
    gateway: str = "auto"
    """How Slurm is talked to: `commands` (squeue, scontrol, sinfo); `pyslurm`; `auto`: pyslurm where it is
    installed and fits this Slurm, else the commands."""
    partition: str = "interleave"
    """The partition of interleaved jobs."""
    group_size: int = 0
    """How many members of a group have their place at a time; 0: as many as there are seats."""
    group_owner: str = "account"
    """`account`: a group's name belongs to the account that opened it, until its last member ends; `cluster`:
    every account's jobs may come in."""
    requeue_faulted: int = 0
    """How often Slurm is told to start a job again that has lost its device state and goes on.

    0: never, so the job keeps its devices until it ends. One submitted with --no-requeue is left alone."""

    def __post_init__(self) -> None:
        if self.mode not in _MODES:
            raise ConfigError(f"[placement] mode {self.mode!r} is unknown; known are {', '.join(_MODES)}")
        wanted = self.members if self.mode == "lane" else 1
        if self.members < 1 or len(set(self.gres)) != wanted or len(self.gres) != wanted:
            raise ConfigError(
                f"[placement] mode {self.mode} with members {self.members} needs {max(wanted, 1)} different "
                f"GRES name(s); gres has {', '.join(self.gres) or 'none'}"
            )
        if self.group_owner not in _OWNERS:
            raise ConfigError(
                f"[placement] group_owner {self.group_owner!r} is unknown; known are {', '.join(_OWNERS)}"
            )
        if self.gateway not in _GATEWAYS:
            raise ConfigError(
                f"[placement] gateway {self.gateway!r} is unknown; known are {', '.join(_GATEWAYS)}"
            )
        for key, least in _LEAST.items():
            value = getattr(self, key)
            if value < 0 or (value == 0 and least):
                raise ConfigError(f"[placement] {key} {value} must be {least or '0 or more'}")

    @property
    def groups(self) -> GroupRules:
        """What a group may be."""
        # Of a request for the shards of several devices, Slurm gives those of the last.
        devices = 1 if self.mode == "shard" else 0
        return GroupRules(self.group_size, devices, self.group_owner == "account")

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """The seats on each device."""
        seats = 1 if self.mode == "lane" else self.members
        return tuple(Lane(name, seats) for name in self.gres)
