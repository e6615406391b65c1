"""Operators have moves of a member stopped: agents are told, and told again until the move is over."""

from __future__ import annotations

from slurm_interleave.client.core.errors import WrongState
from slurm_interleave.client.core.states import Context
from slurm_interleave.orchestrator.core.commands import CancelOperation
from slurm_interleave.orchestrator.core.state import State
from slurm_interleave.orchestrator.core.switches import Spot, Switches
from slurm_interleave.sql.rows import Key


class Cancels:
    """All cancels.

    A switch knows itself which of its moves are cancelled. What no switch waits for, as what an earlier
    orchestrator has ordered, or a drain, is remembered here.
    """

    def __init__(self, state: State, switches: Switches) -> None:
        self._state = state
        self._switches = switches
        self._told: set[Spot] = set()
        self._deaf: set[str] = set()  # nodes whose agents know no cancel

    def cancel(self, key: Key) -> None:
        """Have the moves of *key* stopped on all its nodes. Raises `WrongState`; then nothing has changed."""
        parts = list(self._state.parts[key].values())
        deaf = sorted(part.node for part in parts if part.node in self._deaf)
        if deaf:
            raise WrongState(
                f"{key}: the agent of node {', '.join(deaf)} is of a release that cannot cancel; upgrade it. "
                "What is under way there ends by its deadline"
            )
        for part in parts:
            ours = self._switches.cancelled(key, part.operation)
            if not ours and self.under_way(key, part.node):
                self._told.add((key, part.node))
            self._state.out.append(CancelOperation(part.node, key.job_id, part.operation))

    def under_way(self, key: Key, node: str) -> bool:
        """Tell whether something is done to the state of *key* on *node*, or to its processes."""
        part = self._state.parts.get(key, {}).get(node)
        if part is None:
            return False
        moves = part.context is Context.UNKNOWN or self._switches.pending_on(key, node)
        return moves or self._state.pauses.is_being_saved(key.job_id, node)

    def node_up(self, node: str, *, heeds: bool) -> None:
        """An agent is back and has said what is under way; *heeds*: it knows what a cancel is."""
        (self._deaf.discard if heeds else self._deaf.add)(node)
        for key, where in self._told:
            if where == node and self.under_way(key, node):
                operation = self._state.parts[key][node].operation
                self._state.out.append(CancelOperation(node, key.job_id, operation))

    def look(self, at: float) -> None:
        """Forget what is over by now; who waits for those devices is tried again later, as after a switch."""
        for key, node in [spot for spot in self._told if not self.under_way(*spot)]:
            self._told.discard((key, node))
            devices = {*self._state.devices(key)}
            for waiter in list(self._state.waiters):
                if not devices.isdisjoint(self._state.claimed_devices(waiter)):
                    self._switches.back_off(waiter, at)
