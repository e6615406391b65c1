"""What each job asks for and holds: its own, or as driver of other components of its heterogeneous job."""

from __future__ import annotations

from collections.abc import Mapping

from slurm_interleave.sql.rows import Key, Lease, Waiter


class Drivers:
    """Which jobs belong together, as Slurm says, what each waits for, and the leases it has of others."""

    def __init__(self) -> None:
        # The heterogeneous job of each component. Not remembered: after a restart Slurm says it again.
        self.components: Mapping[str, str] = {}
        self._leases: dict[str, set[Key]] = {}
        self._waiters: dict[str, dict[Key, None]] = {}

    def are_of_one_job(self, job_id: str, other: str) -> bool:
        """Tell whether both are components of the same heterogeneous job."""
        whole = self.components.get(job_id)
        return whole is not None and whole == self.components.get(other)

    def leases_of(self, job_id: str) -> frozenset[Key]:
        """Return the members of other components whose leases *job_id* has asked for."""
        return frozenset(self._leases.get(job_id, ()))

    def waiters_of(self, job_id: str) -> tuple[Key, ...]:
        """Return the waiters that *job_id* has asked for."""
        return tuple(self._waiters.get(job_id, ()))

    def asks(self, key: Key, waiter: Waiter) -> None:
        """Take a waiter."""
        self._waiters.setdefault(waiter.asker, {})[key] = None

    def asks_no_more(self, key: Key, waiter: Waiter) -> None:
        """Forget a waiter."""
        waiters = self._waiters[waiter.asker]
        del waiters[key]
        if not waiters:
            del self._waiters[waiter.asker]

    def put(self, key: Key, lease: Lease) -> None:
        """Take a new lease of *key*."""
        if lease.driver:
            self._leases.setdefault(lease.driver, set()).add(key)

    def drop(self, key: Key, lease: Lease) -> None:
        """A lease has ended, or has another driver now."""
        if lease.driver:
            self._leases[lease.driver].discard(key)
            if not self._leases[lease.driver]:
                del self._leases[lease.driver]
