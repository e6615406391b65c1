"""Runs of jobs, as Slurm knows them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from slurm_interleave.orchestrator.core.book import Device
from tests.simulation.loop import Process


@dataclass
class Run:
    """One run of a job: it has a new one each time that it is requeued."""

    job: str
    groups: dict[str, str]  # by node
    places: dict[str, tuple[int, ...]]
    size: int
    turns: int  # that it still wants
    restarts: int = 0
    at_once: bool = True  # it acquires all its groups at once, else one by one
    process: Process | None = None
    pid: int = 0  # of that process
    over: bool = False  # by Slurm's books
    requeued: bool = False
    ended: float = 0.0  # seconds since the Unix epoch
    environment: dict[str, str] = field(default_factory=dict)
    waits_since: float | None = None
    over_at: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def group(self) -> str:
        """The group on its first node."""
        return self.groups[min(self.groups)]

    def nodes(self, group: str) -> list[str]:
        """Return the nodes where it is in *group*."""
        return [node for node, name in self.groups.items() if name == group]

    def devices(self, group: str) -> frozenset[Device]:
        """Return its devices in *group*."""
        return frozenset(Device(node, i) for node in self.nodes(group) for i in self.places[node])
