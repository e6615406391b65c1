"""A backend that moves nothing: for tests of all the rest, and for jobs that free devices themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from typing_extensions import override

from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent.backends.protocol import Backend, Charge, Device, Target
from slurm_interleave.node_agent.contexts import Outcome, Seen


class NoopBackend(Backend):
    """Says that it is done; what it said before is all that is known of a context."""

    name: ClassVar[str] = "noop"
    in_app: ClassVar[bool] = False
    in_process: ClassVar[bool] = True  # there is none
    charge = Charge.NOTHING

    def __init__(self, node: str, devices: int) -> None:
        """Serve *devices* devices of *node* that have no memory of their own."""
        self._devices = [Device(index, f"NOOP-{node}-{index}", self.name, 0) for index in range(devices)]

    def devices(self) -> list[Device]:
        """Return the devices by name alone."""
        return self._devices

    @override
    def look(self, job: str) -> Seen | None:
        """Return None: there is nothing to look at."""
        return None

    @override
    async def recover(self, jobs: Sequence[str]) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""

    @override
    async def snapshot(self, target: Target) -> Outcome:
        """Say that the state is saved."""
        return Outcome(Context.SAVED)

    @override
    async def restore(self, target: Target) -> Outcome:
        """Say that it is back."""
        return Outcome(Context.RESIDENT)

    @override
    async def discard(self, target: Target) -> Outcome:
        """Say that it is gone."""
        return Outcome(Context.NONE)
