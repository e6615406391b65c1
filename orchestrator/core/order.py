"""Who is first at a device: the policy's rank, and what no policy may overrule."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Iterator, Sequence, Set

from slurm_interleave.client.core.states import Context
from slurm_interleave.orchestrator.core.book import Device
from slurm_interleave.orchestrator.core.policy import Policy, Standing
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
        self._ranks: dict[Key, tuple[float, ...]] = {}
        self._ranked: tuple[int, float] = (0, 0.0)  # in which state, and when
        self._loaded = loaded

    def first(self, device: Device, now: float) -> Key | None:
        """Return who is first at *device* of those that can act."""
        queue = self._queue(device)
        if self.policy.in_order:
            return next(queue, None)
        return min(queue, key=lambda key: self.rank(key, now), default=None)

    def ahead(self, devices: Sequence[Device], key: Key, now: float) -> Set[str]:
        """Return the jobs with waiters that come before *key* at *devices*, its own job maybe among them."""
        earlier, stopped = self._earlier_jobs(devices, key, now), self._state.stopped
        return earlier - stopped if stopped else earlier

    def _earlier_jobs(self, devices: Sequence[Device], key: Key, now: float) -> Set[str]:
        book = self._state.book
        if not self.policy.in_order:
            own = self.rank(key, now)
            queues = (book.queue(device) for device in devices)
            return {other.job_id for queue in queues for other in queue if self.rank(other, now) < own}
        if book.is_last(key, devices):
            return book.jobs(devices)
        return {other.job_id for device in devices for other in self._earlier(device, key)}

    def _earlier(self, device: Device, key: Key) -> Iterable[Key]:
        return itertools.takewhile(lambda other: other != key, self._state.book.queue(device))

    def _queue(self, device: Device) -> Iterator[Key]:
        """Walk those who wait for *device*, but for those who would hold up others: stopped, or cut off."""
        state, queue = self._state, self._state.book.queue(device)
        if not (state.stopped or state.away):
            return queue
        return (key for key in queue if key.job_id not in state.stopped and not self._is_cut_off(key))

    def _is_cut_off(self, key: Key) -> bool:
        """Tell whether waiter *key* is passed over: all its callers were cut off."""
        state = self._state
        calls = state.calls.get(key)
        return bool(calls) and not state.waiters[key].told and all(map(state.away.get, calls or ()))

    def rank(self, key: Key, now: float) -> tuple[float, ...]:
        """Return the rank of waiter *key*; smaller comes first. Worked out once in each state."""
        if self._ranked != (self._state.version, now):
            self._ranked = (self._state.version, now)
            self._ranks.clear()
        if key not in self._ranks:
            self._ranks[key] = self.rank_now(key, now)
        return self._ranks[key]

    def rank_now(self, key: Key, now: float) -> tuple[float, ...]:
        """Return the same, worked out anew."""
        state, waiter = self._state, self._state.waiters[key]
        if key in self._loaded:
            # The devices are ready for it: another one that came meanwhile would waste the switch, each time.
            return (-2.0, waiter.seq)
        keeping = state.keeping.get(key, frozenset())
        if keeping and self._waits.behind(keeping):
            # Others wait for what its job keeps meanwhile: they cannot go first.
            return (-1.0, waiter.seq)
        parts = [part for member in waiter.keys for part in state.parts.get(member, {}).values()]
        standing = Standing(
            account=state.members[key].account,
            priority=state.priorities.get(key.job_id, 0),
            resident=all(part.context is Context.RESIDENT for part in parts),
        )
        return self.policy.rank(waiter, standing, now)

    def next_seq(self, devices: list[Device], pass_by: dict[Key, Key]) -> int:
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
        return (below + limit) // 2
