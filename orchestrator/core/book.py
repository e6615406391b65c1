"""Who waits for, holds and occupies each device: indexes that make a decision cost O(devices of one job).

That is so however many wait, since jobs that share devices mostly have the same ones: waiters are counted by
the set of devices that they wait for.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from slurm_interleave.sql.rows import Key


class Device(NamedTuple):
    """A physical device: its node and its minor number there."""

    node: str
    minor: int

    def __str__(self) -> str:
        return f"{self.node}/{self.minor}"


Crowd = frozenset[Device]  # those who wait for exactly these devices


@dataclass
class _Count:
    """The waiters for exactly the same devices, by job."""

    size: int = 0
    jobs: Counter[str] = field(default_factory=Counter)

    def add(self, job_id: str, by: int) -> None:
        self.size += by
        self.jobs[job_id] += by
        if not self.jobs[job_id]:
            del self.jobs[job_id]


class DeviceBook:
    """Queues, holders, switches and contexts by device.

    A waiter may be granted when it is first in the queue of each of its devices and none of them is held or
    switching: then it conflicts with no holder and with no earlier waiter.
    """

    def __init__(self) -> None:
        self._queues: dict[Device, OrderedDict[Key, int]] = {}
        self._wanted: dict[Key, Crowd] = {}
        self._crowds: dict[Device, dict[Crowd, _Count]] = {}
        self.holders: dict[Device, Key] = {}
        self.switching: dict[Device, Key] = {}
        self._contexts: dict[Device, dict[Key, None]] = {}

    def enqueue(self, key: Key, seq: int, devices: Iterable[Device]) -> None:
        """Put *key* into the queue of each device, or move it there, to its place by *seq*."""
        devices = list(devices)
        self._want(key, self._wanted.get(key, frozenset()).union(devices))
        for device in devices:
            queue = self._queues.setdefault(device, OrderedDict())
            queue.pop(key, None)
            later = []
            for other, number in reversed(queue.items()):
                if number < seq:
                    break
                later.append(other)
            queue[key] = seq
            for other in reversed(later):
                queue.move_to_end(other)

    def dequeue(self, key: Key, devices: Iterable[Device]) -> None:
        """Take *key* out of the queues."""
        devices = list(devices)
        self._want(key, self._wanted.get(key, frozenset()).difference(devices))
        for device in devices:
            queue = self._queues.get(device)
            if queue is not None:
                queue.pop(key, None)
                if not queue:
                    del self._queues[device]

    def release(self, key: Key, devices: Iterable[Device]) -> list[Device]:
        """End what *key* holds of *devices*, and return that."""
        freed = [device for device in devices if self.holders.get(device) == key]
        for device in freed:
            del self.holders[device]
        return freed

    def queue(self, device: Device) -> Iterator[Key]:
        """Walk the queue of *device* from its head."""
        return iter(self._queues.get(device, ()))

    def depth(self, devices: Iterable[Device]) -> int:
        """Return how many members wait for at least one of *devices*."""
        return sum(crowd.size for crowd in self._crowds_of(devices))

    def jobs(self, devices: Iterable[Device]) -> Set[str]:
        """Return the jobs with a waiter for at least one of *devices*; good until the next change."""
        crowds = self._crowds_of(devices)
        if len(crowds) == 1:
            return crowds[0].jobs.keys()
        return set[str]().union(*(crowd.jobs for crowd in crowds))

    def wanted(self, key: Key) -> Crowd:
        """Return the devices that *key* waits for; none if it does not wait."""
        return self._wanted.get(key, frozenset())

    def crowds(self, devices: Iterable[Device]) -> tuple[Crowd, ...]:
        """Return who waits for at least one of *devices*, by what they wait for."""
        return tuple({crowd: None for device in devices for crowd in self._crowds.get(device, ())})

    def crowds_at(self, device: Device) -> tuple[Crowd, ...]:
        """Return the same for one device."""
        return tuple(self._crowds.get(device, ()))

    def apart(self, devices: Iterable[Device]) -> Iterable[Device]:
        """Return one of all *devices* that have the same waiters: who is first is the same at each."""
        return {self.crowds_at(device): device for device in devices}.values()

    def _want(self, key: Key, devices: Crowd) -> None:
        before = self._wanted.pop(key, frozenset())
        self._count(key, before, -1)
        self._count(key, devices, 1)
        if devices:
            self._wanted[key] = devices

    def _count(self, key: Key, devices: Crowd, by: int) -> None:
        crowd: _Count | None = None
        for device in devices:
            here = self._crowds.setdefault(device, {})
            if crowd is None:
                crowd = here.get(devices) or _Count()
                crowd.add(key.job_id, by)
            if crowd.size:
                here[devices] = crowd
            else:
                here.pop(devices, None)
            if not here:
                del self._crowds[device]

    def _crowds_of(self, devices: Iterable[Device]) -> list[_Count]:
        found: dict[Crowd, _Count] = {}
        for device in devices:
            found.update(self._crowds.get(device, {}))
        return list(found.values())

    def occupy(self, key: Key, devices: Iterable[Device]) -> None:
        """Note that *key* may have device state on each device."""
        for device in devices:
            self._contexts.setdefault(device, {})[key] = None

    def vacate(self, key: Key, devices: Iterable[Device]) -> None:
        """Note that *key* has none there any more."""
        for device in devices:
            there = self._contexts.get(device)
            if there is not None:
                there.pop(key, None)
                if not there:
                    del self._contexts[device]

    def occupants(self, device: Device) -> Iterable[Key]:
        """Return who may have device state on *device*."""
        return self._contexts.get(device, ())
