"""What the placement helper needs from others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from slurm_interleave.client.core.errors import SlurmFailed
from slurm_interleave.orchestrator.placement.plan import Node, Placement
from slurm_interleave.orchestrator.placement.reservations import Reservation
from slurm_interleave.orchestrator.placement.squeue import SlurmJob
from slurm_interleave.orchestrator.placement.traits import Traits


class Book(Protocol):
    """The placements, kept in SQL."""

    async def placements(self) -> list[Placement]:
        """Return all, oldest first."""

    async def record(self, placement: Placement) -> None:
        """Keep *placement*; one that is there for the same job is replaced."""

    async def drop(self, job_id: str) -> None:
        """Forget the job's placement; nothing happens if there is none."""


class Fleet(Protocol):
    """The agents that are connected now."""

    def nodes(self) -> list[Node]:
        """Return their nodes."""

    def reserve(self, placement: Placement) -> None:
        """Tell the agents of the placement's nodes; waits for none, repeats do no harm."""

    def forget(self, job_id: str) -> None:
        """Tell the agents that the job's reservation is void."""


class Members(Protocol):
    """The jobs that take turns now."""

    def listed(self, queue: Sequence[SlurmJob]) -> list[str]:
        """Take all that slurmctld knows; a job that waits or is over there in two looks in a row is over.

        Return the jobs that two looks in a row lack: they may only be hidden, so each is to be asked for.
        """

    def answered(self, job_id: str, runs: bool) -> None:
        """Take what slurmctld says of one of these; with no run, it is over."""

    def heard(self, jobs: Sequence[SlurmJob]) -> None:
        """Take what Slurm says of interleaved jobs that are not over; others of them are unknown here."""

    def fault(self, job_id: str) -> str:
        """Return why the job's device state is lost; empty if it is not."""


@dataclass(frozen=True)
class Update:
    """What is changed of a pending job."""

    name: str
    """As in `SlurmJob.name`."""
    admin_comment: str
    nodes: tuple[str, ...] = ()
    """The only ones that it may have; empty: as it is."""
    gres: str = ""
    """What it asks for on each node; empty: as it is."""
    count: int = 0
    """How many nodes it has; 0: as it is."""


class Slurm(Protocol):
    """Slurm's side; jobs go by `SlurmJob.name`. Each method raises `SlurmFailed` if not said otherwise."""

    async def jobs(self) -> list[SlurmJob]:
        """Return all jobs that slurmctld knows."""

    async def job(self, job_id: str) -> SlurmJob:
        """Return one job, or the record of an array."""

    async def runs(self, job_id: str) -> bool:
        """Tell whether a job has nodes, asked for alone; False only if slurmctld says that it has none."""

    async def update(self, updates: Sequence[Update]) -> Mapping[str, SlurmFailed]:
        """Change jobs, each once or more often; return, by name, why that failed. Raises nothing."""

    async def unpin(self, name: str) -> None:
        """Take back which nodes a pending job must have."""

    async def node_states(self) -> Mapping[str, str]:
        """Return the state of each node in small letters, as sinfo writes it: `idle`, `down*`."""

    async def traits(self) -> Mapping[str, Traits]:
        """Return what each node has."""

    async def reservations(self) -> list[Reservation]:
        """Return Slurm's reservations."""

    async def used(self) -> Mapping[tuple[str, str], int]:
        """Return how much of each typed GRES, as in `ilva:g0`, is in use on each node."""

    async def release(self, names: Sequence[str]) -> Mapping[str, SlurmFailed]:
        """Let held jobs start, in this order; return, by name, why that failed. Raises nothing."""

    async def requeue(self, name: str) -> None:
        """End a running job and put it back into the queue."""

    async def hold(self, name: str) -> None:
        """Keep a pending job from starting."""
