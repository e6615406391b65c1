"""Those who wait for the same devices, kept in the order of their ranks while ranks change."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from typing import NamedTuple

from slurm_interleave.orchestrator.core import policy
from slurm_interleave.sql.rows import Key

Lot = tuple[float, policy.Lot]
Weight = tuple[float, float]


class Rank(NamedTuple):
    """Where a waiter stands: the smallest comes first, and no two are equal."""

    weight: Weight
    seq: int
    key: Key


class _Queue:
    """The waiters of one lot, first come first; *weight* is what it weighed when it was last looked at."""

    def __init__(self, weight: Weight) -> None:
        self.weight = weight
        self.waiters: list[tuple[int, Key]] = []

    def rank(self, place: int = 0) -> Rank:
        return Rank(self.weight, *self.waiters[place])


class Line:
    """Waiters in lots: within a lot the order of arrival counts, between lots the weight does.

    So a weight that changes moves one entry, however many wait in its lot. It may rise at any time without a
    word, since it is looked at again where its lot seems to be next; it never falls.
    """

    def __init__(self, weigh: Callable[[Lot], Weight]) -> None:
        self._weigh = weigh
        self._queues: dict[Lot, _Queue] = {}
        self._heads: list[Rank] = []  # the first of each lot, in the order of the weights that are known
        self._lots: dict[Key, tuple[Lot, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._lots)

    def has(self, key: Key, lot: Lot, seq: int) -> bool:
        """Tell whether *key* has its place in *lot* by *seq*."""
        return self._lots.get(key) == (lot, seq)

    def put(self, key: Key, lot: Lot, seq: int) -> None:
        """Give *key*, which is not here, its place in *lot* by *seq*."""
        self._lots[key] = lot, seq
        queue = self._queues.get(lot)
        if queue is None:
            queue = self._queues[lot] = _Queue(self._weigh(lot))
        elif queue.waiters[0] < (seq, key):
            insort(queue.waiters, (seq, key))
            return
        else:
            self._drop_head(queue)
        queue.waiters.insert(0, (seq, key))
        insort(self._heads, queue.rank())

    def remove(self, key: Key) -> None:
        """Take *key* out."""
        lot, seq = self._lots.pop(key)
        queue = self._queues[lot]
        place = bisect_left(queue.waiters, (seq, key))
        if place:
            del queue.waiters[place]
            return
        self._drop_head(queue)
        del queue.waiters[0]
        if queue.waiters:
            insort(self._heads, queue.rank())
        else:
            del self._queues[lot]

    def rank(self, key: Key) -> Rank:
        """Return where *key* stands now."""
        lot, seq = self._lots[key]
        return Rank(self._weigh(lot), seq, key)

    def first(self) -> Rank:
        """Return who comes first; the line must not be empty."""
        self._settle(0)
        return self._heads[0]

    def __iter__(self) -> Iterator[Rank]:
        """Walk the line in order; it must not change meanwhile."""
        begun: list[tuple[Rank, int]] = []  # a heap: who is next of each lot that has begun, its place there
        taken = 0  # so many lots have
        while begun or taken < len(self._heads):
            if taken < len(self._heads):
                self._settle(taken)
                if not begun or self._heads[taken] < begun[0][0]:
                    heapq.heappush(begun, (self._heads[taken], 0))
                    taken += 1
            rank, place = begun[0]
            yield rank
            queue, place = self._queues[self._lots[rank.key][0]], place + 1
            if place < len(queue.waiters):
                heapq.heapreplace(begun, (queue.rank(place), place))
            else:
                heapq.heappop(begun)

    def before(self, rank: Rank) -> Iterator[Key]:
        """Return those who come before *rank*, in no order."""
        for lot, queue in self._queues.items():
            weight, waiters = self._weigh(lot), queue.waiters
            if weight == rank.weight:
                waiters = waiters[: bisect_left(waiters, (rank.seq, rank.key))]
            elif weight > rank.weight:
                continue
            for _, key in waiters:
                yield key

    def ends_with(self, rank: Rank) -> bool:
        """Tell whether nobody comes after *rank*, where that is seen at once."""
        if len(self._queues) > 1:
            return False
        [(lot, queue)] = self._queues.items()
        return Rank(self._weigh(lot), *queue.waiters[-1]) <= rank

    def _settle(self, place: int) -> None:
        """Put lots that have become heavier further back, until the one at *place* belongs there."""
        while (head := self._heads[place]).weight != (weight := self._weigh(self._lots[head.key][0])):
            del self._heads[place]
            self._queues[self._lots[head.key][0]].weight = weight
            insort(self._heads, head._replace(weight=weight), lo=place)

    def _drop_head(self, queue: _Queue) -> None:
        del self._heads[bisect_left(self._heads, queue.rank())]
