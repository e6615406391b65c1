"""Who waits for, holds and occupies each device: indexes that make a decision cost O(devices of one job)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from slurm_interleave.sql.rows import Key


class Device(NamedTuple):
    """A physical device: its node and its minor number there."""

    node: str
    minor: int

    def __str__(self) -> str:
        return f"{self.node}/{self.minor}"


class DeviceBook:
    """Queues, holders, switches and contexts by device.

    A waiter may be granted when it is first in the queue of each of its devices and none of them is held or
    switching: then it conflicts with no holder and with no earlier waiter.
    """

    def __init__(self) -> None:
        self._queues: dict[Device, OrderedDict[Key, int]] = {}
        self.holders: dict[Device, Key] = {}
        self.switching: dict[Device, Key] = {}
        self._contexts: dict[Device, dict[Key, None]] = {}

    def enqueue(self, key: Key, seq: int, devices: Iterable[Device]) -> None:
        """Put *key* into the queue of each device, at its place by *seq*."""
        for device in devices:
            queue = self._queues.setdefault(device, OrderedDict())
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
        for device in devices:
            queue = self._queues.get(device)
            if queue is not None:
                queue.pop(key, None)
                if not queue:
                    del self._queues[device]

    def first(self, device: Device) -> Key | None:
        """Return who is first in the queue of *device*."""
        queue = self._queues.get(device)
        return next(iter(queue)) if queue else None

    def queue(self, device: Device) -> Iterator[Key]:
        """Walk the queue of *device* from its head."""
        return iter(self._queues.get(device, ()))

    def depth(self, devices: Iterable[Device]) -> int:
        """Return how many members wait for at least one of *devices*."""
        queues = [self._queues[device] for device in devices if device in self._queues]
        if len(queues) <= 1:
            return sum(map(len, queues))
        return len(set().union(*queues))

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
