"""Who is first at a device: the policy's order, and what no policy may overrule."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Container, Iterable, Iterator, Sequence, Set
from dataclasses import replace

from slurm_interleave.orchestrator.core.book import Crowd, Device
from slurm_interleave.orchestrator.core.line import Rank
from slurm_interleave.orchestrator.core.lines import AGED, Lines
from slurm_interleave.orchestrator.core.policy import Policy
from slurm_interleave.orchestrator.core.state import State
from slurm_interleave.orchestrator.core.waits import Waits
from slurm_interleave.sql.rows import Key

SPACING = 1 << 20  # between two waiters: room for those that come before others


class Order:
    """The order of the waiters at each device. It is one order for all devices at any moment."""

    def __init__(self, state: State, waits: Waits, policy: Policy, loaded: Container[Key]) -> None:
        """*loaded* are the waiters whose switch has ended well."""
        self._state = state
        self._waits = waits
        self.policy = policy
        self._lines = Lines(state, policy, loaded)

    def first(self, device: Device, now: float) -> Key | None:
        """Return who is first at *device* of those that can act."""
        state, crowds = self._state, self._state.book.crowds_at(device)
        if not crowds:
            return None
        self._lines.update(now)
        if state.pauses.jobs or state.attached.away:
            return next((rank.key for rank in self._walk(crowds) if self._can_act(rank.key)), None)
        pressed = self._pressed(crowds)
        if len(crowds) == 1 and not pressed:
            return self._lines[crowds[0]].first().key
        return min((*pressed, *(self._lines[crowd].first() for crowd in crowds))).key

    def leads(self, key: Key, devices: Iterable[Device], now: float) -> bool:
        """Tell whether *key* is first at each of *devices*."""
        return all(self.first(device, now) == key for device in self._state.book.apart(devices))

    def would_pass(self, key: Key, waiter: Key, at: float) -> bool:
        """Tell whether *key*, resident now, came before *waiter* if it asked at *at*, all else unchanged."""
        return self._lines.of(waiter).rank(waiter).weight >= self._lines.weight_if_asked(key, at)

    def heads(self, devices: Iterable[Device], count: int, now: float) -> dict[Key, None]:
        """Return the first *count* waiters at each of *devices*."""
        self._lines.update(now)
        found: dict[Key, None] = {}
        for crowds in dict.fromkeys(map(self._state.book.crowds_at, devices)):
            if crowds:
                found.update((rank.key, None) for rank in itertools.islice(self._walk(crowds), count))
        return found

    def ahead(self, devices: Sequence[Device], key: Key, now: float) -> Set[str]:
        """Return the jobs with waiters that come before *key* at *devices*, its own job maybe among them."""
        self._lines.update(now)
        crowds = self._state.book.crowds(devices)
        if not crowds:
            return frozenset()
        lines, pressed = [self._lines[crowd] for crowd in crowds], self._pressed(crowds)
        [rank] = [rank for rank in pressed if rank.key == key] or [self._lines.of(key).rank(key)]
        if not (pressed or self._state.pauses.jobs) and all(line.ends_with(rank) for line in lines):
            return self._state.book.jobs(devices)
        before = itertools.chain.from_iterable(line.before(rank) for line in lines)
        earlier = itertools.chain(before, (other.key for other in pressed if other < rank))
        return {other.job_id for other in earlier if not self._stopped(other)}

    def walk(self, devices: Iterable[Device], now: float) -> Iterator[tuple[Key, Set[str]]]:
        """Walk those who wait for at least one of *devices*, in order, each with `ahead`, which grows.

        It is all that is ahead of those who wait for these devices and no others.
        """
        self._lines.update(now)
        ahead: dict[str, None] = {}
        for rank in self._walk(self._state.book.crowds(devices)):
            yield rank.key, ahead.keys()
            if not self._stopped(rank.key):
                ahead[rank.key.job_id] = None

    def _walk(self, crowds: Iterable[Crowd]) -> Iterator[Rank]:
        """Walk the lines of *crowds* as one. Who is pressed comes in its place, and then again."""
        lines, pressed = [self._lines[crowd] for crowd in crowds], self._pressed(crowds)
        return iter(lines[0]) if len(lines) == 1 and not pressed else heapq.merge(pressed, *lines)

    def _pressed(self, crowds: Iterable[Crowd]) -> Sequence[Rank]:
        """Return those whose jobs keep leases that others wait for: they could not be granted before.

        They stand among those who have aged, all in the order of the queues, in which nobody comes behind one
        who waits for what he keeps. Before all of these they would starve those who wait for something else.
        """
        state, keepers = self._state, self._lines.keepers(crowds)
        if not keepers:
            return ()
        return sorted(
            Rank((AGED, 0.0), state.waiters[key].seq, key)
            for key in keepers
            if self._waits.presses(state.keeping[key])
        )

    def _can_act(self, key: Key) -> bool:
        """Tell whether *key* may hold up others: not if it is stopped, or all its callers were cut off."""
        state, calls = self._state, self._state.attached.of(key)
        if self._stopped(key):
            return False
        return not calls or bool(state.waiters[key].told) or not all(map(state.attached.away.get, calls))

    def _stopped(self, key: Key) -> bool:
        return bool(self._state.pauses.stopped(self._state.waiters[key].jobs))

    def next_seq(self, devices: Sequence[Device], pass_by: dict[Key, Key]) -> int:
        """Return the number of a new waiter: the last, or just before those of *pass_by* in its queues."""
        state = self._state
        queues = [list(state.book.queue(device)) for device in devices] if pass_by else []
        passed = [state.waiters[key].seq for queue in queues for key in queue if key in pass_by]
        if not passed:
            state.seq += SPACING
            return state.seq
        taken = {waiter.seq for waiter in state.waiters.values()}
        limit = min(passed)
        below = max((seq for seq in taken if seq < limit), default=limit - SPACING)
        if limit - below < 2:
            self._space_out()
            return self.next_seq(devices, pass_by)
        return (below + limit) // 2

    def _space_out(self) -> None:
        """Number all waiters anew, with room between any two."""
        state = self._state
        waiters = sorted(state.waiters.values(), key=lambda waiter: waiter.seq)
        for number, waiter in enumerate(waiters, 1):
            state.put_waiter(replace(waiter, seq=number * SPACING), state.keeping[waiter.keys[0]])
        state.seq = len(waiters) * SPACING
