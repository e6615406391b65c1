"""All lines of waiters, kept up to what changes, so that a decision costs little however many wait."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Container, Iterable, Sequence

from slurm_interleave.client.core.states import Context
from slurm_interleave.orchestrator.core.book import Crowd
from slurm_interleave.orchestrator.core.line import Line, Lot, Weight
from slurm_interleave.orchestrator.core.policy import Policy, Standing
from slurm_interleave.orchestrator.core.state import State
from slurm_interleave.sql.rows import Key, Waiter

LOADED, AGED, OTHERS = -1.0, 0.0, 1.0  # what counts before the policy's own weight


class Lines:
    """One line for each set of devices that somebody waits for."""

    def __init__(self, state: State, policy: Policy, loaded: Container[Key]) -> None:
        """*loaded* are the waiters whose switch has ended well."""
        self._state = state
        self._policy = policy
        self._loaded = loaded
        self._lines: dict[Crowd, Line] = {}
        self._crowds: dict[Key, Crowd] = {}  # of each waiter
        self._keepers: dict[Crowd, set[Key]] = {}  # waiters whose jobs keep leases meanwhile
        self._young: list[tuple[float, Key]] = []  # who has not aged, by the time of asking
        self._asked: dict[Key, float] = {}  # of these, that time

    def __getitem__(self, crowd: Crowd) -> Line:
        return self._lines[crowd]

    def of(self, key: Key) -> Line:
        """Return the line that waiter *key* stands in."""
        return self._lines[self._crowds[key]]

    def keepers(self, crowds: Iterable[Crowd]) -> Sequence[Key]:
        """Return the waiters of *crowds* whose jobs keep leases while they wait, but for who is loaded."""
        if not self._keepers:
            return ()
        found = (key for crowd in crowds for key in self._keepers.get(crowd, ()))
        return [key for key in found if key not in self._loaded]

    def update(self, now: float) -> None:
        """Take what has changed, and who has aged."""
        if self._state.unranked:
            self._take_changes(now)
        if self._young and self._young[0][0] <= now - self._policy.ageing_s:
            self._age(now)

    def _take_changes(self, now: float) -> None:
        state, claims = self._state, self._state.claims
        for key in {claims.get(member, member): None for member in state.unranked}:
            waiter, crowd, before = state.waiters.get(key), state.book.wanted(key), self._crowds.get(key)
            lot = self._lot(waiter, now) if waiter and crowd else None
            if before is not None:
                stands = lot and waiter and before == crowd and self._lines[crowd].has(key, lot, waiter.seq)
                if stands and (key in self._keepers.get(crowd, ())) == self._keeps(key):
                    continue
                self._remove(key)
            if waiter and lot:
                self._put(key, waiter, crowd, lot)
        state.unranked.clear()

    def _put(self, key: Key, waiter: Waiter, crowd: Crowd, lot: Lot) -> None:
        self._crowds[key] = crowd
        if crowd not in self._lines:
            self._lines[crowd] = Line(self._weigh)
        self._lines[crowd].put(key, lot, waiter.seq)
        if self._policy.in_order:
            return
        if lot[0] == OTHERS:
            self._asked[key] = waiter.requested
            insort(self._young, (waiter.requested, key))
        if self._keeps(key):
            self._keepers.setdefault(crowd, set()).add(key)

    def _keeps(self, key: Key) -> bool:
        return bool(self._state.keeping[key]) and not self._policy.in_order

    def _remove(self, key: Key) -> None:
        crowd = self._crowds.pop(key)
        self._lines[crowd].remove(key)
        if not self._lines[crowd]:
            del self._lines[crowd]
        asked = self._asked.pop(key, None)
        if asked is not None:
            del self._young[bisect_left(self._young, (asked, key))]
        keepers = self._keepers.get(crowd)
        if keepers is not None:
            keepers.discard(key)
            if not keepers:
                del self._keepers[crowd]

    def _age(self, now: float) -> None:
        aged = bisect_right(self._young, now - self._policy.ageing_s, key=lambda young: young[0])
        for _, key in self._young[:aged]:
            del self._asked[key]
            line = self.of(key)
            line.remove(key)
            line.put(key, (AGED, 0.0), self._state.waiters[key].seq)
        del self._young[:aged]

    def _lot(self, waiter: Waiter, now: float) -> Lot:
        state, key = self._state, waiter.keys[0]
        if self._policy.in_order:
            return OTHERS, 0.0
        if key in self._loaded:
            # The devices are ready for it: another one that came meanwhile would waste the switch, each time.
            return LOADED, 0.0
        if waiter.requested <= now - self._policy.ageing_s:
            return AGED, 0.0
        parts = [part for member in waiter.keys for part in state.parts.get(member, {}).values()]
        resident = all(part.context is Context.RESIDENT for part in parts)
        return OTHERS, self._policy.lot(self._standing(key, waiter.requested, resident=resident))

    def _standing(self, key: Key, requested: float, *, resident: bool) -> Standing:
        state = self._state
        return Standing(
            account=state.members[key].account,
            priority=state.priorities.get(key.job_id, 0),
            resident=resident,
            requested=requested,
            move_s=state.move_s(key),
        )

    def weight_if_asked(self, key: Key, at: float) -> Weight:
        """Return what member *key* would weigh if it asked at *at* while its context is on its devices."""
        return self._weigh((OTHERS, self._policy.lot(self._standing(key, at, resident=True))))

    def _weigh(self, lot: Lot) -> Weight:
        return lot[0], self._policy.weight(lot[1]) if lot[0] == OTHERS else 0.0
