"""How long waiters will wait, by what is usual of those before them.

A length that is not known gives no figure, to nobody who waits for it: nothing is guessed. What nobody can
foresee is not in a figure: who will yet be put in front by a policy, what a fault or a pause will take.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from slurm_interleave.client.core.states import Context
from slurm_interleave.orchestrator.core.book import Crowd, Device
from slurm_interleave.orchestrator.core.habits import Habits, Usual
from slurm_interleave.orchestrator.core.order import Order
from slurm_interleave.orchestrator.core.state import State
from slurm_interleave.orchestrator.core.switches import Switches
from slurm_interleave.orchestrator.core.turns import Turns
from slurm_interleave.sql.rows import Key

NOT_KNOWN = math.inf
# An answer to one who waits looks at so many waiters before him: more cost too much, and are too unsure.
LOOKED_AT = 64


@dataclass(frozen=True)
class Expected:
    """A turn to come: *switch_s* of it pass before the grant, *hold_s* after it; or `NOT_KNOWN`."""

    devices: Collection[Device]
    switch_s: float
    hold_s: float


def expected_waits(free_s: Mapping[Device, float], queue: Iterable[Expected]) -> Iterator[float]:
    """Yield the seconds until the grant of each turn of *queue*, which is in order, or `NOT_KNOWN`.

    *free_s*: the seconds until a device is free that somebody has now, or `NOT_KNOWN`.
    """
    free_s = dict(free_s)
    for turn in queue:
        wait_s = max((free_s.get(device, 0.0) for device in turn.devices), default=0.0) + turn.switch_s
        yield wait_s
        free_s.update(dict.fromkeys(turn.devices, wait_s + turn.hold_s))


class Forecast:
    """Expected waits of those who wait now."""

    def __init__(self, state: State, switches: Switches, order: Order, turns: Turns, habits: Habits) -> None:
        self._state = state
        self._switches = switches
        self._order = order
        self._turns = turns
        self._habits = habits

    def waits(self, keys: Iterable[Key], at: float, most: int | None = None) -> dict[Key, float]:
        """Return the seconds until the grant of each of the waiters *keys* of whom they are known.

        Of each queue the first *most* waiters are looked at (None: all).
        """
        found: dict[Key, float] = {}
        wanted: dict[Crowd, list[Key]] = {}
        for key in keys:
            wanted.setdefault(self._state.book.wanted(key), []).append(key)
        wanted.pop(frozenset(), None)  # who waits for no device waits no more, or has not been placed yet
        while wanted:
            devices = self._connected(next(iter(wanted)))
            crowds = self._state.book.crowds(devices)
            mine = [key for crowd in crowds for key in wanted.pop(crowd, ())]
            found.update(self._of_queue(devices, mine, at, most))
        return found

    def _connected(self, devices: Crowd) -> Crowd:
        """Return *devices* and those that others wait for together with them, and so on."""
        while True:
            more = devices.union(*self._state.book.crowds(devices))
            if more == devices:
                return devices
            devices = more

    def _of_queue(
        self, devices: Crowd, wanted: Collection[Key], at: float, most: int | None
    ) -> Iterator[tuple[Key, float]]:
        left, keys, state = set(wanted), dict[Key, None](), self._state
        for key, _ in self._order.walk(devices, at):
            if not state.pauses.stopped(state.waiters[key].jobs):
                keys[key] = None
            left.discard(key)
            if not left or len(keys) == most:
                break
        waits = expected_waits(self._free_s(devices, at), (self._turn(key, at) for key in keys))
        for key, wait_s in zip(keys, waits, strict=True):
            if key in wanted and wait_s != NOT_KNOWN:
                yield key, wait_s

    def _free_s(self, devices: Crowd, at: float) -> dict[Device, float]:
        holders = self._state.book.holders
        return {device: self._rest_s(holders[device], at) for device in devices if device in holders}

    def _rest_s(self, holder: Key, at: float) -> float:
        """Return how long *holder* will hold from now on."""
        lease, state = self._state.leases[holder], self._state
        if state.pauses.stopped((holder.job_id, lease.asker)) or state.members[holder].fault:
            return NOT_KNOWN
        held_s = self._habits.held_before_s(holder) + at - lease.granted
        return _rest_s(self._habits.hold(holder, lease.phase), held_s)

    def _turn(self, key: Key, at: float) -> Expected:
        waiter, devices = self._state.waiters[key], self._state.claimed_devices(key)
        holds = [self._habits.hold(member, waiter.phase) for member in waiter.keys]
        hold_s = max(hold.usual_s if hold else NOT_KNOWN for hold in holds)
        return Expected(devices, self._switch_s(key, devices, at), hold_s)

    def _switch_s(self, key: Key, devices: Collection[Device], at: float) -> float:
        """Return what passes from the moment when *devices* are free to the grant of *key*."""
        state, under_way = self._state, self._switches.active.get(key)
        usual = self._habits.switch(key)
        if under_way is not None:
            return _rest_s(usual, at - under_way.cost.began)
        held = any(device in state.book.holders or device in state.book.switching for device in devices)
        if not held and self._order.first(next(iter(devices)), at) == key:
            if self._turns.obstacle(key, list(devices), at):
                return NOT_KNOWN
            if key in self._switches.costs:
                return 0.0
        parts = [part for member in state.waiters[key].keys for part in state.parts[member].values()]
        if all(part.context is Context.RESIDENT for part in parts):
            return 0.0
        return usual.usual_s if usual else NOT_KNOWN


def _rest_s(usual: Usual | None, passed_s: float) -> float:
    """Return what is left of something that has lasted for *passed_s*."""
    if usual is None or passed_s > 2 * usual.longest_s:
        return NOT_KNOWN
    return max(usual.usual_s - passed_s, 0.0)
