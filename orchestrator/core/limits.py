"""How long a lease may last while others wait; what an operator or a rule takes back."""

from __future__ import annotations

from slurm_interleave.client.core.errors import NotTheHolder
from slurm_interleave.client.core.states import SliceState
from slurm_interleave.orchestrator.core.commands import Notice, WakeMe
from slurm_interleave.orchestrator.core.events import HoldCheck
from slurm_interleave.orchestrator.core.order import Order
from slurm_interleave.orchestrator.core.rules import Rules
from slurm_interleave.orchestrator.core.state import State
from slurm_interleave.orchestrator.core.waits import Waits
from slurm_interleave.sql.rows import Key, Waiter


class Limits:
    """First the holder is asked to yield; then, where the site allows it, it is saved and queued again."""

    def __init__(self, state: State, rules: Rules, waits: Waits, order: Order) -> None:
        self._state = state
        self._waits = waits
        self._order = order
        self._rules = rules
        self._asked: dict[int, float] = {}  # by epoch: until when the holder was asked to yield

    def granted(self, key: Key) -> None:
        """Begin to watch a new lease; tell its holder at once if others wait."""
        state, lease = self._state, self._state.leases[key]
        limit = self._limit(key)
        if limit:
            check = HoldCheck(lease.granted + limit, key.job_id, key.group, lease.epoch)
            state.out.append(WakeMe(check))
        waiting = state.book.depth(state.devices(key))
        if waiting:
            state.out.append(Notice(key, waiting))

    def queued(self, waiter: Key, at: float) -> None:
        """Somebody waits now: tell the holders, and ask those who hold too long already."""
        state, asker = self._state, self._state.waiters[waiter].asker
        holders = [state.book.holders.get(device) for device in state.claimed_devices(waiter)]
        for holder in dict.fromkeys(holders):
            if holder is not None and state.leases[holder].asker != asker:
                state.out.append(Notice(holder, state.book.depth(state.devices(holder))))
                self.check(holder, state.leases[holder].epoch, at)

    def check(self, key: Key, epoch: int, at: float) -> None:
        """Ask the holder to yield if it holds too long while others wait, or take the lease back."""
        state, lease = self._state, self._state.leases.get(key)
        limit = self._limit(key)
        if lease is None or lease.epoch != epoch or not limit or at < lease.granted + limit:
            return
        waiting = state.book.depth(state.devices(key))
        by = self._asked.get(epoch)
        if not waiting:
            return
        if by is None:
            by = self._asked[epoch] = at + self._rules.yield_grace_s
            state.out += [
                Notice(key, waiting, by),
                WakeMe(HoldCheck(by, key.job_id, key.group, epoch)),
            ]
            state.note("lease.overdue", key, f"held {at - lease.granted:.0f} s while {waiting} wait")
        # Who is suspended cannot hear that it is asked.
        if self._rules.force and (at >= by or lease.asker in state.pauses.suspended):
            self.revoke(key, at)

    def revoke(self, key: Key, at: float) -> None:
        """End a lease against its holder, who is queued again behind those that wait.

        Raises `NotTheHolder`.
        """
        state, lease = self._state, self._state.leases.get(key)
        if lease is None:
            raise NotTheHolder(f"{key} holds no devices, so there is nothing to take back")
        state.end_lease(key, SliceState.REVOKED, at)
        # Behind those that wait, but for those that wait for what its job keeps meanwhile.
        keeping = state.leases_of(lease.asker)
        seq = self._order.next_seq(state.devices(key), self._waits.behind(keeping))
        told = lease.told or lease.epoch
        waiter = Waiter(*key, seq, lease.phase, at, (), told, driver=lease.driver)
        state.put_waiter(waiter, keeping)
        state.note("lease.revoked", key, f"after {at - lease.granted:.1f} s")

    def _limit(self, key: Key) -> float:
        member = self._state.members.get(key)
        return self._rules.max_hold_of(key.group, member.partition if member is not None else "")

    def ended(self, epoch: int) -> None:
        """A lease has ended."""
        self._asked.pop(epoch, None)
