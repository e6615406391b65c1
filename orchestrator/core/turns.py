"""The grant rule.

The unit of exclusion is the physical device, whatever group a job named. A waiter is granted when it
conflicts with no holder and with no waiter before it, and its own context alone is on its devices.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set

from slurm_interleave.client.core.states import Context
from slurm_interleave.orchestrator.core.attached import Asker
from slurm_interleave.orchestrator.core.book import Crowd, Device
from slurm_interleave.orchestrator.core.commands import Grant, WakeMe
from slurm_interleave.orchestrator.core.events import Wake
from slurm_interleave.orchestrator.core.habits import Habits
from slurm_interleave.orchestrator.core.order import Order
from slurm_interleave.orchestrator.core.rules import Rules
from slurm_interleave.orchestrator.core.state import IN_MOTION, State
from slurm_interleave.orchestrator.core.switches import Cost, Spot, Switches
from slurm_interleave.sql.rows import Key, Lease, Waiter


class Turns:
    """Grants, and the switches that they need."""

    def __init__(self, state: State, switches: Switches, order: Order, rules: Rules, habits: Habits) -> None:
        self._state = state
        self._switches = switches
        self._order = order
        self._rules = rules
        self._habits = habits

    def look(self, device: Device, at: float) -> Key | None:
        """Grant the first waiter of *device*, or begin its switch, if it can be; return it if granted."""
        state = self._state
        if device in state.book.holders or device in state.book.switching:
            return None  # whoever is first, that is an obstacle
        key = self._order.first(device, at)
        if key is None:
            return None
        devices = state.claimed_devices(key)
        if not (state.attached.of(key) or state.waiters[key].told) or self.obstacle(key, devices, at):
            return None
        save, load = self._foreign_contexts(key, devices), self._saved_contexts(key)
        if save and self._lingers(key, save, at):
            return None
        if save or load:
            self._switches.begin(key, save, load, at)
            return None
        self._grant(key, at)
        return key

    def _lingers(self, key: Key, save: list[Spot], at: float) -> bool:
        """Tell whether the last holder is expected back so soon that its context had better stay."""
        waiter, policy = self._state.waiters[key], self._order.policy
        if not policy.lingers or at - waiter.requested >= policy.ageing_s:
            return False
        known = [back for other, _ in save if (back := self._habits.next_acquire(other, at)) is not None]
        if not known:
            return False
        back = max(known)
        longest_s = max(policy.linger_s(self._state.move_s(other), self._rules.linger_s) for other, _ in save)
        until = min(back + policy.grace * longest_s, waiter.requested + policy.ageing_s)
        if not at < until or back > at + longest_s or not self._would_be_first(save, key, back):
            return False
        # Once, though each of its devices is looked at: each wake looks at all of them again.
        if self._state.lingers.get(key) != until:
            self._state.lingers[key] = until
            self._state.out.append(WakeMe(Wake(until, key.job_id, key.group, waiter.requested)))
        return True

    def _would_be_first(self, save: list[Spot], key: Key, back: float) -> bool:
        """Tell whether a last holder that asks at *back* comes before waiter *key* by the policy."""
        return all(self._order.would_pass(other, key, back) for other in {other for other, _ in save})

    def evict(self, key: Key, at: float) -> None:
        """Save the context of *key*, which has yielded, in the background."""
        parts = list(self._state.parts.get(key, {}).values())
        spots = [(key, part.node) for part in parts if part.context is Context.RESIDENT]
        busy = any(device in self._state.book.switching for device in self._state.devices(key))
        away = any(part.node not in self._state.nodes_up for part in parts)
        if spots and not busy and not away:
            self._switches.begin(key, spots, [], at)

    def obstacle(self, key: Key, devices: Sequence[Device], at: float) -> str:
        """Return why waiter *key* cannot have its devices now; empty if it can."""
        state, book = self._state, self._state.book
        for member in state.waiters[key].keys:
            missing = sorted(set(state.members[member].nodes) - state.parts.get(member, {}).keys())
            if missing:
                return f"node {', '.join(missing)} has not registered the job"
        if stopped := state.pauses.stopped(state.waiters[key].jobs):
            saved = state.pauses.is_being_saved(stopped)
            return "the job's processes are being saved" if saved else "the job is suspended in Slurm"
        busy = any(device in book.holders or device in book.switching for device in devices)
        if busy or not self._order.leads(key, devices, at):
            return "other jobs come first"
        if key in self._switches.active:
            return "the switch of its earlier acquire is not over"
        if self._switches.not_before.get(key, 0.0) > at:
            return "a switch failed and is tried again soon"
        return self._context_obstacle(key, devices)

    def _context_obstacle(self, key: Key, devices: Sequence[Device]) -> str:
        state, own = self._state, self._state.waiters[key].keys
        for device in devices:
            for other in state.book.occupants(device):
                context = state.parts[other][device.node].context
                if context in IN_MOTION:
                    return f"the state of job {other.job_id} on node {device.node} is not known yet"
                if other not in own and (context is Context.FAULTED or state.members[other].fault):
                    return (
                        f"job {other.job_id} is faulted and keeps device {device} until it ends or is cleared"
                    )
        parts = [part for member in own for part in state.parts[member].values()]
        warm = all(part.context is Context.RESIDENT for part in parts)
        away = sorted({part.node for part in parts} - state.nodes_up)
        return f"the agent of node {', '.join(away)} is away" if away and not warm else ""

    def _foreign_contexts(self, key: Key, devices: Sequence[Device]) -> list[Spot]:
        """Return the members and nodes whose device state must leave *devices*."""
        own = self._state.waiters[key].keys
        found = {
            (other, device.node): None
            for device in devices
            if not self._fits(own, device)
            for other in self._state.book.occupants(device)
            if other not in own
        }
        return list(found)

    def _fits(self, own: tuple[Key, ...], device: Device) -> bool:
        """Tell whether all contexts that would be on *device* have room there, and the site allows it."""
        memory = self._state.memory.get(device, 0)
        if not self._rules.co_resident or not memory:
            return False
        mine = {member for member in own if device in self._state.devices(member)}
        sizes = [self._size(member, device) for member in {*self._state.book.occupants(device), *mine}]
        return all(sizes) and sum(sizes) <= memory

    def _size(self, key: Key, device: Device) -> float:
        """Return how much of *device* the context of *key* takes by its last snapshot; 0: not known."""
        devices = self._state.parts[key][device.node].devices
        return self._state.footprints.get((key, device.node), 0) / max(len(devices), 1)

    def _saved_contexts(self, key: Key) -> list[Spot]:
        state = self._state
        return [
            (member, part.node)
            for member in state.waiters[key].keys
            for part in state.parts[member].values()
            if part.context is Context.SAVED
        ]

    def _grant(self, key: Key, at: float) -> None:
        state = self._state
        waiter, cost = state.waiters[key], self._switches.costs.pop(key, None)
        asker = state.askers.get(key, Asker())
        calls = state.drop_waiter(key)
        leases = [_lease(member, state.next_epoch(), waiter, asker, cost, at) for member in waiter.keys]
        for lease in leases:
            state.put_lease(lease)
        # Kept until the lease ends: if they all vanish unanswered, the grant is given back.
        state.attached.add(key, calls)
        state.granted_with[key] = waiter.keys
        for member in waiter.keys:
            if calls:
                state.told_at[member] = at
            for node in list(state.parts[member]):
                state.set_context(member, node, Context.RESIDENT)
        held = [member for member in sorted(asker.held) if member in state.leases]
        for member in held:
            state.hear(member, waiter.asker, asker.name, at, alone=False)
            state.heard.add(member)
        also = (*leases[1:], *(state.leases[member] for member in held))
        state.out.append(Grant(leases[0], calls, also))

    def place(self, key: Key, at: float) -> tuple[int, str]:
        """Return how many jobs come before waiter *key*, and what it waits for beside them."""
        devices = self._state.claimed_devices(key)
        return self._place(key, devices, self._order.ahead(devices, key, at), at)

    def places(self, keys: Collection[Key], at: float) -> dict[Key, tuple[int, str]]:
        """Return the same for each of the waiters *keys*, looking at each queue once."""
        if len(keys) == 1:
            return {key: self.place(key, at) for key in keys}
        crowds: dict[Crowd, set[Key]] = {}
        for key in keys:
            crowds.setdefault(self._state.book.wanted(key), set()).add(key)
        found: dict[Key, tuple[int, str]] = {}
        for crowd, wanted in crowds.items():
            for key, ahead in self._order.walk(crowd, at):
                if key in wanted:
                    wanted.remove(key)
                    found[key] = self._place(key, self._state.claimed_devices(key), ahead, at)
                if not wanted:
                    break
            found.update((key, self.place(key, at)) for key in wanted)
        return found

    def _place(self, key: Key, devices: Sequence[Device], ahead: Set[str], at: float) -> tuple[int, str]:
        book, leases = self._state.book, self._state.leases
        holders = dict.fromkeys(book.holders[device] for device in devices if device in book.holders)
        holding = len({holder.job_id for holder in holders} - ahead - {key.job_id})
        waiting = len(ahead) - (key.job_id in ahead)
        if holding + waiting:
            askers = (leases[holder].asker for holder in holders)
            stalled = next((job for job in askers if job in self._state.pauses.suspended), "")
            return holding + waiting, f"holder {stalled} is suspended in Slurm" if stalled else ""
        if key in self._switches.active:
            return 0, "its turn has come, device state is being moved"
        return 0, self.obstacle(key, devices, at)


def _lease(member: Key, epoch: int, waiter: Waiter, asker: Asker, cost: Cost | None, at: float) -> Lease:
    """Return what *waiter* gets for *member*; *cost* is that of its switch, if it needed one."""
    return Lease(
        member.job_id,
        member.group,
        epoch=epoch,
        phase=waiter.phase,
        requested=waiter.requested,
        granted=at,
        switched=cost is not None,
        restored=cost is not None and cost.restored,
        switch_s=cost.ended - cost.began if cost else 0.0,
        snapshot_s=cost.snapshot_s if cost else 0.0,
        restore_s=cost.restore_s if cost else 0.0,
        switch_bytes=cost.bytes if cost else 0,
        told=waiter.told,
        heard_by=asker.name,
        alone=asker.alone,
        driver=waiter.asker if waiter.asker != member.job_id else "",
    )
