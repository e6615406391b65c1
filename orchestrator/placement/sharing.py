"""How jobs share the devices of nodes: as [placement] says, or a table [node_classes.NAME] for some."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.client.core.hostlist import expand
from slurm_interleave.orchestrator.placement.plan import Lane

MODES = ("lane", "token", "shard")


@dataclass(frozen=True)
class Sharing:
    """One way. Raises `ConfigError` for values that do not go together."""

    mode: str
    gres: tuple[str, ...]
    members: int

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ConfigError(f"mode {self.mode!r} is unknown; known are {', '.join(MODES)}")
        wanted = self.members if self.mode == "lane" else 1
        if self.members < 1 or len(set(self.gres)) != wanted or len(self.gres) != wanted:
            raise ConfigError(
                f"mode {self.mode} with members {self.members} needs {max(wanted, 1)} different "
                f"GRES name(s); gres has {', '.join(self.gres) or 'none'}"
            )

    def lanes(
        self, only: frozenset[str] = frozenset(), lacking: frozenset[str] = frozenset()
    ) -> tuple[Lane, ...]:
        """Return the seats on each device of these nodes."""
        seats = 1 if self.mode == "lane" else self.members
        # Of a request for the shards of several devices, Slurm gives those of the last.
        devices = 1 if self.mode == "shard" else 0
        return tuple(Lane(name, seats, devices, only, lacking) for name in self.gres)


@dataclass(frozen=True)
class NodeClass:
    """A table [node_classes.NAME]: nodes that are shared in another way. Each field is one key."""

    nodes: str
    """Their names, as in `g[1-4],h1`. A job of several nodes has all of them in one class."""
    mode: str
    """As in [placement]."""
    gres: tuple[str, ...]
    """As in [placement]."""
    members: int = 2
    """As in [placement]."""

    def __post_init__(self) -> None:
        """Raise `ConfigError` for what is no class."""
        if not self.names:
            raise ConfigError("nodes: at least one node must be named")
        _ = self.sharing

    @property
    def names(self) -> frozenset[str]:
        """The nodes by name."""
        return frozenset(expand(self.nodes))

    @property
    def sharing(self) -> Sharing:
        """How they are shared."""
        return Sharing(self.mode, self.gres, self.members)


def lanes_of(rest: Sharing, classes: Iterable[NodeClass]) -> tuple[Lane, ...]:
    """Return the seats on each device: by its class, and by *rest* on nodes without one."""
    classes = list(classes)
    named = frozenset[str]().union(*(one.names for one in classes))
    return rest.lanes(lacking=named) + tuple(
        lane for one in classes for lane in one.sharing.lanes(only=one.names)
    )


def refuse_twice(classes: Iterable[NodeClass]) -> None:
    """Raise `ConfigError` for a node of two classes."""
    twice = [node for node, count in Counter(n for one in classes for n in one.names).items() if count > 1]
    if twice:
        raise ConfigError(f"[node_classes]: {', '.join(sorted(twice))} must be in one class alone")
