"""What a watcher is told, and when, on a clock of the test's own."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from slurm_interleave.orchestrator.watchers import GATHER_S, Watcher

GATHER_MS = round(GATHER_S * 1000)


class Clock:
    """Time, in milliseconds, passes when it is told to."""

    def __init__(self) -> None:
        self.now = 0
        self._timers: list[tuple[int, Callable[[], None]]] = []

    def call_later(self, delay: float, call: Callable[[], None]) -> None:
        self._timers.append((self.now + round(delay * 1000), call))

    def passes(self, milliseconds: int) -> None:
        self.now += milliseconds
        due = [call for at, call in self._timers if at <= self.now]
        self._timers = [(at, call) for at, call in self._timers if at > self.now]
        for call in due:
            call()


class Watched:
    """A watcher, and one who listens to it all the time: *told* are his messages, with their times."""

    def __init__(self, *groups: str) -> None:
        self.clock = Clock()
        self.watcher = Watcher(groups, self.clock.call_later)
        self.told: list[tuple[int, list[str]]] = []
        self._listener = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        while True:
            groups = sorted(await self.watcher.next())
            self.told.append((self.clock.now, groups))

    async def rests(self) -> None:
        """Let the listener take all that there is for him."""
        for _ in range(3):
            await asyncio.sleep(0)

    async def passes(self, milliseconds: int) -> None:
        self.clock.passes(milliseconds)
        await self.rests()

    async def change(self, *groups: str) -> None:
        for group in groups:
            self.watcher.changed(group)
        await self.rests()

    def end(self) -> None:
        self._listener.cancel()


async def test_the_first_message_names_all_groups_also_if_there_are_none() -> None:
    for groups in ([], ["g", "h"]):
        watched = Watched(*groups)
        await watched.rests()
        assert watched.told == [(0, groups)]
        watched.end()


async def test_a_group_that_changes_after_a_rest_is_told_at_once() -> None:
    watched = Watched("g")
    await watched.rests()
    await watched.passes(GATHER_MS)

    await watched.change("g")

    assert watched.told[1:] == [(GATHER_MS, ["g"])]
    watched.end()


async def test_changes_that_follow_are_gathered_and_the_last_is_told() -> None:
    watched = Watched("g")
    await watched.rests()

    for _ in range(9):
        await watched.passes(GATHER_MS // 10)
        await watched.change("g")
    assert watched.told[1:] == []

    await watched.passes(GATHER_MS // 10)
    assert [groups for _, groups in watched.told[1:]] == [["g"]]
    watched.end()


async def test_another_group_does_not_wait_for_one_that_changes_often() -> None:
    watched = Watched("g")
    await watched.rests()
    await watched.change("g")

    await watched.change("h")

    assert watched.told[1:] == [(0, ["h"])]
    watched.end()


async def test_a_listener_who_is_slow_is_told_of_each_group_once() -> None:
    clock = Clock()
    watcher = Watcher((), clock.call_later)
    assert list(await watcher.next()) == []

    for group in "ghgghg":
        watcher.changed(group)
        clock.passes(GATHER_MS)

    assert sorted(await watcher.next()) == ["g", "h"]


@given(st.lists(st.tuples(st.integers(0, 150), st.sampled_from("gh")), max_size=30))
def test_each_change_is_told_within_the_time_and_no_group_more_often(steps: list[tuple[int, str]]) -> None:
    asyncio.run(told_in_time(steps))


async def told_in_time(steps: list[tuple[int, str]]) -> None:
    watched, changes = Watched(), list[tuple[int, str]]()
    await watched.rests()
    for pause_ms, group in steps:
        for _ in range(pause_ms):
            await watched.passes(1)
        await watched.change(group)
        changes.append((watched.clock.now, group))
    for _ in range(2 * GATHER_MS):
        await watched.passes(1)

    times = {name: [at for at, groups in watched.told if name in groups] for name in "gh"}
    for at, group in changes:
        assert any(at <= told <= at + GATHER_MS for told in times[group])
    for told in times.values():
        assert all(later - earlier >= GATHER_MS for earlier, later in itertools.pairwise(told))
    watched.end()
