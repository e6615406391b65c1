"""A session whose orchestrator grants at once, or refuses."""

from __future__ import annotations

from slurm_interleave.client.core.errors import JobFaulted
from slurm_interleave.client.session import Lease, Member, Session


class Granting(Session):
    """Keeps what was asked of it."""

    def __init__(self) -> None:
        super().__init__(Member("17", "demo", "n1", "nowhere", "secret"))
        self.faulted = ""
        self.phases: list[str] = []
        self.yielded: list[int] = []

    def acquire(self, phase: str, _timeout_s: float | None) -> Lease:
        if self.faulted:
            raise JobFaulted(self.faulted)
        self.phases.append(phase)
        return Lease(len(self.phases), 0.0, context_restored=False, switch_s=0.0)

    def yield_lease(self, epoch: int) -> int:
        self.yielded.append(epoch)
        return 0
