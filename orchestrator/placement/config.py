"""Sections [placement] and [node_classes.NAME] of interleave.toml."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from slurm_interleave.client.core.config import load_section, load_tables
from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.orchestrator.placement.groups import GroupRules
from slurm_interleave.orchestrator.placement.plan import Lane
from slurm_interleave.orchestrator.placement.sharing import NodeClass, Sharing, lanes_of, refuse_twice

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
    classes: tuple[NodeClass, ...] = ()
    """Nodes that are shared in another way than mode, gres and members say: tables [node_classes.NAME]."""

    def __post_init__(self) -> None:
        try:
            _ = self.sharing
        except ConfigError as error:
            raise ConfigError(f"[placement] {error}") from None
        if not all(isinstance(one, NodeClass) for one in self.classes):
            raise ConfigError("[placement] classes: write a table [node_classes.NAME] for each instead")
        refuse_twice(self.classes)
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
        most = [lane.devices for lane in self.lanes]
        return GroupRules(self.group_size, max(most) if all(most) else 0, self.group_owner == "account")

    @property
    def sharing(self) -> Sharing:
        """How nodes are shared that are of no class."""
        return Sharing(self.mode, self.gres, self.members)

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """The seats on each device."""
        return lanes_of(self.sharing, self.classes)

    @property
    def most_members(self) -> int:
        """How many jobs may share a device of the nodes where most may."""
        return max([self.members, *(one.members for one in self.classes)])

    def of(self, node: str) -> Sharing:
        """Return how the devices of *node* are shared."""
        return next((one.sharing for one in self.classes if node in one.names), self.sharing)


def load_placement(path: Path | None) -> PlacementConfig:
    """Return what the file at *path* says of placement. Raises `ConfigError`."""
    classes = load_tables(NodeClass, "node_classes", path)
    return replace(load_section(PlacementConfig, "placement", path), classes=tuple(classes.values()))
