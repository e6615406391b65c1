"""Who waits for whom: a cycle is found the moment it closes.

A waiter waits for the holders of its devices and for the earlier waiters in their queues; a lease waits for
the waiters whose job keeps it while they wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from slurm_interleave.client.core.errors import Deadlock
from slurm_interleave.orchestrator.core.book import Device
from slurm_interleave.orchestrator.core.state import State
from slurm_interleave.sql.rows import Key


class Cycle(NamedTuple):
    """Waits that would never end: *waiter* is the one that keeps what is waited for."""

    waiter: Key
    words: str


class Waits:
    """The wait-for graph over leases and waiters, read from the state when it is asked for."""

    def __init__(self, state: State) -> None:
        self._state = state

    def behind(self, leases: Iterable[Key]) -> dict[Key, Key]:
        """Return other jobs' waiters that wait for *leases*, directly or not, each with what led to it."""
        reasons: dict[Key, Key] = {}
        held = deque((lease, lease) for lease in leases)
        while held:
            lease, reason = held.popleft()
            for waiter in self._queued(self._state.devices(lease), lease.job_id):
                self._add(waiter, reason, reasons, held)
        return reasons

    def _add(self, waiter: Key, reason: Key, reasons: dict[Key, Key], held: deque[tuple[Key, Key]]) -> None:
        """Add *waiter*, those queued behind it, and the leases that they keep."""
        state, todo = self._state, [(waiter, reason)]
        while todo:
            waiter, reason = todo.pop()
            if waiter in reasons:
                continue
            reasons[waiter] = reason
            held += [(lease, waiter) for lease in state.keeping.get(waiter, ()) if lease in state.leases]
            for device in state.claimed_devices(waiter):
                todo += [(later, waiter) for later in self._after(device, waiter)]

    def check(self, job_id: str, keeping: frozenset[Key], devices: Iterable[Device]) -> dict[Key, Key]:
        """Return the waiters that wait for *keeping*: a new waiter that keeps these must not wait for them.

        Raises `Deadlock`, naming the cycle, if a holder of *devices* is among those that wait for it.
        """
        reasons = self.behind(keeping) if keeping else {}
        cycle = self.cycle(job_id, devices, reasons)
        if cycle is not None:
            raise Deadlock(cycle.words)
        return reasons

    def cycle(self, job_id: str, devices: Iterable[Device], reasons: Mapping[Key, Key]) -> Cycle | None:
        """Return how a waiter of *job_id* for *devices* would wait for itself, by what `behind` returned."""
        for device in devices if reasons else ():
            holder = self._state.book.holders.get(device)
            if holder is None or holder.job_id == job_id:
                continue
            for waiter, reason in reasons.items():
                if holder in self._state.keeping.get(waiter, ()):
                    return Cycle(waiter, _words(job_id, device, holder, waiter, reason, reasons))
        return None

    def presses(self, keeping: Iterable[Key]) -> bool:
        """Tell whether other jobs wait for one of the leases *keeping*, which are of one job."""
        return any(
            job != lease.job_id
            for lease in keeping
            for job in self._state.book.jobs(self._state.devices(lease))
        )

    def _queued(self, devices: Iterable[Device], job_id: str) -> list[Key]:
        queues = (self._state.book.queue(device) for device in devices)
        return [waiter for queue in queues for waiter in queue if waiter.job_id != job_id]

    def _after(self, device: Device, waiter: Key) -> list[Key]:
        later, passed = [], False
        for key in self._state.book.queue(device):
            if passed and key.job_id != waiter.job_id:
                later.append(key)
            passed = passed or key == waiter
        return later


def _words(
    job_id: str, device: Device, holder: Key, waiter: Key, reason: Key, reasons: Mapping[Key, Key]
) -> str:
    """Return the cycle in words, from the new waiter round to itself."""
    steps = [f"{waiter}, which waits for {reason}"]
    while reason.job_id != job_id and reason in reasons:
        waiter, reason = reason, reasons[reason]
        steps.append(f"which waits for {reason}")
    return (
        f"job {job_id} would wait for ever: device {device} is held by {holder}, kept by "
        f"{', '.join(steps)}; acquire groups in one order everywhere, or all at once"
    )
