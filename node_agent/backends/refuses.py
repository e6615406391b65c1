"""What stands for a mover that a job or a request named wrongly: it fails, and nothing is touched."""

from __future__ import annotations

from typing_extensions import override

from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent.backends.protocol import Charge, Mover, Target
from slurm_interleave.node_agent.contexts import Outcome


class Refuses(Mover):
    """Says why it does nothing."""

    in_app = True
    charge = Charge.NOTHING

    def __init__(self, name: str, why: str) -> None:
        """*name* is that of the mover it stands for."""
        self.name = name
        self._why = why

    @override
    async def snapshot(self, target: Target) -> Outcome:
        """Leave it on the devices."""
        return Outcome(Context.RESIDENT, error=self._why)

    @override
    async def restore(self, target: Target) -> Outcome:
        """Leave it saved."""
        return Outcome(Context.SAVED, error=self._why)

    @override
    async def discard(self, target: Target) -> Outcome:
        """There is nothing of its own."""
        return Outcome(Context.NONE)
