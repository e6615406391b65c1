"""What callers ask for: acquire, yield, and that they are gone."""

from __future__ import annotations

from dataclasses import replace

from slurm_interleave.client.core.errors import (
    Busy,
    Deadlock,
    JobFaulted,
    NotRegistered,
    NotTheHolder,
    StaleLease,
    WrongState,
)
from slurm_interleave.client.core.states import SliceState
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.attached import Asker
from slurm_interleave.orchestrator.core.commands import Grant, WakeMe, Yielded
from slurm_interleave.orchestrator.core.order import Order
from slurm_interleave.orchestrator.core.state import State
from slurm_interleave.orchestrator.core.waits import Waits
from slurm_interleave.sql.rows import Key, Lease, Waiter

# A caller who was cut off, by the network or by a restart, has so many seconds to come back to his place.
RETURN_GRACE_S = 10.0


class Calls:
    """Turns calls into waiters, and ends leases. A call that is refused changes nothing."""

    def __init__(self, state: State, waits: Waits, order: Order) -> None:
        self._state = state
        self._waits = waits
        self._order = order

    def find(self, job_id: str, group: str) -> Key:
        """Return the live member that is meant; raises `NotRegistered` or `WrongState`.

        The first says of no group whether there is one.
        """
        key = self._meant(job_id, group)
        if key not in self._state.members or self._state.members[key].over:
            raise NotRegistered(
                f"job {job_id} is not registered in group {group}; submit with --interleave-group={group}, "
                "or without Slurm: interleave register; if it was, check interleave-agent on the job's nodes"
            )
        return key

    def _meant(self, job_id: str, group: str) -> Key:
        """Return the job itself in *group*, else the one component of its heterogeneous job that is in it.

        So one process drives them all. Nobody else's job is meant, nor another job of the same user. What it
        has asked for already is remembered, so after a restart that need not wait for Slurm's word.
        """
        state, own = self._state, Key(job_id, group)
        if own in state.members:
            return own
        claims = state.drivers.waiters_of(job_id)
        driven = state.drivers.leases_of(job_id).union(*(state.waiters[claim].keys for claim in claims))
        found = [key for key in driven if key.group == group] or self._components_in(group, job_id)
        if len(found) > 1:
            jobs = ", ".join(sorted(key.job_id for key in found))
            raise WrongState(
                f"job {job_id}: components {jobs} of its heterogeneous job are in group {group}, and nobody "
                "can see which is meant; submit each with a group of its own"
            )
        return found[0] if found else own

    def _components_in(self, group: str, job_id: str) -> list[Key]:
        state = self._state
        uids = {state.members[key].uid for key in state.jobs.get(job_id, ()) if not state.members[key].over}
        return [
            key
            for key in state.groups.get(group, ())
            if state.drivers.are_of_one_job(job_id, key.job_id) and state.members[key].uid in uids
        ]

    def acquire(self, event: ev.Acquire) -> tuple[Key | None, bool]:
        """Queue a caller; return the waiter that it waits with, if it must wait, and whether that is new.

        Raises `NotRegistered`, `JobFaulted`, `Busy` and `Deadlock`.
        """
        state = self._state
        keys = list(dict.fromkeys(self.find(event.job_id, group) for group in (event.group, *event.also)))
        for key in keys:
            if state.members[key].fault:
                raise JobFaulted(f"{key} is faulted: {state.members[key].fault}")
        wanted = [key for key in keys if key not in state.leases]
        if not wanted:
            self._come_back(keys, event)
            leases = [state.leases[key] for key in keys]
            state.out.append(Grant(leases[0], frozenset({event.call}), tuple(leases[1:])))
            return None, False
        claim = self._claim_of(wanted)
        new = claim is None
        if claim is None:
            claim = self._queue(event, wanted)
        state.attached.add(claim, {event.call})
        if not event.silent:
            state.attached.listeners.add(event.call)
        asker = state.askers.get(claim, Asker(event.name, bool(event.name)))
        held = asker.held.union(key for key in keys if key in state.leases)
        state.askers[claim] = Asker(event.name or asker.name, asker.alone and event.name == asker.name, held)
        state.touch(state.claimed_devices(claim))
        return claim, new

    def _come_back(self, keys: list[Key], event: ev.Acquire) -> None:
        """Put the call in the place of those that were to hear of the grant and are away.

        Other leases were not made for this call, so its end must not end them; nor must theirs, from now on.
        """
        calls = self._state.attached.of(keys[0])
        unheard = bool(calls and calls <= self._state.attached.away.keys())
        for key in keys:
            self._state.hear(key, event.job_id, event.name, event.at, alone=unheard and bool(event.name))
        if unheard:
            self._state.attached.add(keys[0], {event.call})
        else:
            self._state.heard.update(keys)

    def away(self, event: ev.Away) -> None:
        """Keep the place of a caller for a while, and the lease that he has not heard of."""
        state, key = self._state, self._state.attached.member(event.call)
        if key is None:
            return
        state.attached.away[event.call] = event.cut
        state.out.append(WakeMe(ev.Cancel(event.at + RETURN_GRACE_S, event.call)))
        if key in state.waiters:
            state.touch(state.claimed_devices(key))

    def _claim_of(self, wanted: list[Key]) -> Key | None:
        """Return the waiter for exactly these members; raises `Busy` if one waits with others."""
        state = self._state
        for key in wanted:
            claim = state.claims.get(key)
            if claim is None:
                continue
            if set(state.waiters[claim].keys) != set(wanted):
                groups = ", ".join(member.group for member in state.waiters[claim].keys)
                raise Busy(f"{key} waits already, for group(s) {groups} at once; wait for that call first")
            return claim
        return None

    def _queue(self, event: ev.Acquire, wanted: list[Key]) -> Key:
        state = self._state
        devices = list(dict.fromkeys(device for key in wanted for device in state.devices(key)))
        keeping = frozenset[Key]() if event.independent else state.leases_of(event.job_id)
        pass_by = self._waits.check(event.job_id, keeping, devices)
        seq = self._order.next_seq(devices, pass_by)
        first, also = wanted[0], Waiter.also_of(wanted)
        driver = event.job_id if any(key.job_id != event.job_id for key in wanted) else ""
        waiter = Waiter(*first, seq, event.phase, event.at, also, 0, event.independent, driver)
        state.put_waiter(waiter, keeping)
        return first

    def granted(self, key: Key) -> None:
        """A job has a new lease: its other waiters keep that too; one that would wait for ever is refused."""
        state, job_id = self._state, self._state.leases[key].asker
        for waiter in state.drivers.waiters_of(job_id):
            if waiter in state.waiters and not state.waiters[waiter].independent:
                self._keep_more(waiter, state.leases_of(job_id))

    def _keep_more(self, key: Key, keeping: frozenset[Key]) -> None:
        state, waiter, devices = self._state, self._state.waiters[key], self._state.claimed_devices(key)
        pass_by = self._waits.behind(keeping)
        closing = self._waits.cycle(waiter.asker, devices, pass_by)
        if closing is not None:
            # Nobody calls for what a rule took, so another one of the cycle is told.
            told = closing.waiter if waiter.told else key
            state.refuse(told, Deadlock(closing.words))
            if told == key:
                return
            pass_by = self._waits.behind(keeping)
        pass_by.pop(key, None)
        before = [other for device in devices for other in state.book.queue(device) if other in pass_by]
        if any(state.waiters[other].seq < waiter.seq for other in before):
            waiter = replace(waiter, seq=self._order.next_seq(devices, pass_by))
        state.put_waiter(waiter, keeping)

    def yield_(self, event: ev.Yield) -> None:
        """End a lease. Raises `StaleLease`, `NotTheHolder`, and what `find` raises."""
        state, key = self._state, self._meant(event.job_id, event.group)
        lease, waiter = state.leases.get(key), state.waiters.get(key)
        if lease is not None and event.epoch in (0, *lease.known):
            state.out.append(Yielded(state.book.depth(state.devices(key))))
            # Else it is late: its process may be gone, and another one of the job has the lease by now.
            if not event.call or event.call == (lease.heard_by or event.call):
                how = SliceState.PAUSED if event.pause else SliceState.YIELDED
                state.end_lease(key, how, event.at)
        elif waiter is not None and waiter.told and event.epoch in (0, waiter.told):
            # Its lease was taken by a rule, and now it does not want it back.
            state.drop_waiter(key)
            state.yielded[key] = waiter.told
            state.out.append(Yielded(state.book.depth(state.devices(key))))
        else:
            self._yield_again(event, lease)

    def _yield_again(self, event: ev.Yield, lease: Lease | None) -> None:
        """A yield without the lease: repeated, late, or of somebody else's."""
        key, state = self.find(event.job_id, event.group), self._state
        if event.epoch and state.yielded.get(key) != event.epoch:
            now = f"lease {lease.epoch} is held now" if lease else "no lease is held"
            raise StaleLease(f"{key}: lease {event.epoch} has ended and {now}; acquire again")
        holder = next((k for k in state.groups[event.group] if k in state.leases), None)
        if not event.epoch and key not in state.yielded and holder is not None:
            raise NotTheHolder(f"{key}: the devices are held by another job of the group; nothing changed")
        state.out.append(Yielded(state.book.depth(state.devices(key))))

    def abandon(self, event: ev.Abandon) -> None:
        """End what an acquire was granted that is given up, also if that was before a restart."""
        for key in self._state.leases_of(event.job_id):
            lease = self._state.leases[key]
            if lease.alone and lease.heard_by == event.name:
                self._state.end_lease(key, SliceState.YIELDED, event.at)

    def cancel(self, event: ev.Cancel) -> Key | None:
        """Forget a caller; return the waiter that nobody waits for any more, if it was one.

        New holders of whom nobody heard, by this call or a later one, give their grant back.
        """
        state, key = self._state, self._state.attached.drop(event.call)
        if key is None or state.attached.of(key):
            if key in state.waiters:
                state.touch(state.claimed_devices(key))  # who remains may be cut off
            return None
        if key in state.waiters:
            if state.waiters[key].told:
                return None
            state.drop_waiter(key)
            return key
        for member in state.granted_with.get(key, (key,)):
            if member in state.leases and member not in state.heard:
                state.end_lease(member, SliceState.YIELDED, event.at)
        return None
