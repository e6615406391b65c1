"""A session whose orchestrator grants at once."""

from __future__ import annotations

from typing import Any

from slurm_interleave.client.ask import Lease
from slurm_interleave.client.session import Member, Session


class Granting(Session):
    """Keeps what was asked of it."""

    def __init__(self) -> None:
        super().__init__(Member("17", "demo", "n1", "nowhere", "secret"))
        self.phases: list[str] = []
        self.yielded: list[int] = []

    def acquire(self, phase: str, *_: Any, **__: Any) -> Lease:
        self.phases.append(phase)
        return Lease(len(self.phases), 0.0, context_restored=False, switch_s=0.0, group="demo")

    def yield_lease(self, epoch: int, *_: Any, **__: Any) -> int:
        self.yielded.append(epoch)
        return 0
