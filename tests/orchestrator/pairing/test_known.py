"""What placement knows of workloads: bounded, and learned anew of those alone that had turns."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_interleave.client.core.errors import DatabaseFailed
from slurm_interleave.client.core.states import SliceState
from slurm_interleave.orchestrator.pairing import known
from slurm_interleave.orchestrator.pairing.config import PairingConfig
from slurm_interleave.orchestrator.pairing.known import WORKLOADS, Known
from slurm_interleave.orchestrator.pairing.profile import Profile, as_text, workload_of
from slurm_interleave.sql.rows import Slice
from slurm_interleave.sql.slices import SliceFilter
from slurm_interleave.sql.store import Store, row_id

NOW = 1e9
TURN = Slice(
    epoch=0, job_id="1", group="g", role="", uid=1, user="u", account="ml", partition="p", name="",
    backend="sim", nodes=("n1",), devices=("n1/0",), phase="train", state=SliceState.YIELDED, requested=0,
    granted=0, ended=0, switched=True, switch_s=2, snapshot_s=1, restore_s=1, switch_bytes=2, off_s=300.0,
)  # fmt: skip


def turns(name: str, count: int = 5, first: float = NOW - 9000) -> list[Slice]:
    begins = [first + 10 * number for number in range(count)]
    return [replace(TURN, name=name, requested=at, granted=at, ended=at + 9) for at in begins]


class Database:
    """Ended turns, and the names of the workloads that are learned from them."""

    def __init__(self, folder: Path, config: PairingConfig | None = None) -> None:
        self.rows: list[Slice] = []
        self.fails = False
        self.learned: list[set[str]] = []
        self.known = Known(
            self._slices,
            lambda start, _each, _most: self._slices(SliceFilter(start=start)),
            config or PairingConfig(profiles=str(folder / "none")),
            lambda: NOW,
        )

    def _slices(self, wanted: SliceFilter) -> Iterator[Sequence[Slice]]:
        yield sorted((row for row in self.rows if row.ended > wanted.start), key=lambda row: row.ended)
        if self.fails:
            raise DatabaseFailed("away")

    def look(self, *new: Slice) -> set[str]:
        """Return of which workloads something was learned."""
        self.rows += new
        self.known.look()
        return self.learned[-1]


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Database:
    made = Database(tmp_path)

    def learn(rows: Iterable[Slice], now: float) -> list[Profile]:
        given = list(rows)
        made.learned.append({row.name for row in given})
        return real(given, now)

    real = known.learn
    monkeypatch.setattr(known, "learn", learn)
    return made


def named(*names: str) -> set[str]:
    return {workload_of(replace(TURN, name=name)) for name in names}


def test_only_workloads_with_new_turns_are_learned_anew_and_the_others_stay_known(database: Database) -> None:
    assert database.look(*turns("a"), *turns("b")) == {"a", "b"}
    assert database.look() == set()
    assert database.look(*turns("b", first=NOW - 900), *turns("c", first=NOW - 900)) == {"b", "c"}

    assert database.known.advice.profiles.keys() == named("a", "b", "c")
    assert database.known.advice.profiles[named("b").pop()].turns > 9


def test_nothing_new_leaves_the_advice_and_what_it_remembers_as_it_is(database: Database) -> None:
    database.look(*turns("a"))
    advice = database.known.advice
    database.look()

    assert database.known.advice is advice


def test_of_more_workloads_than_are_kept_those_without_turns_for_the_longest_are_forgotten(
    database: Database,
) -> None:
    names = [f"w{number}" for number in range(WORKLOADS)]
    database.look(*(row for n, name in enumerate(names) for row in turns(name, first=NOW - 9000 + n)))
    database.look(*turns("w0", first=NOW - 900), *turns("x", first=NOW - 800), *turns("y", first=NOW - 700))

    kept = database.known.advice.profiles.keys()
    assert kept == named(*names, "x", "y") - named("w1", "w2")
    assert len(kept) == WORKLOADS


def test_turns_that_were_read_before_the_database_failed_are_learned_from_the_next_time(
    database: Database,
) -> None:
    database.fails = True
    with pytest.raises(DatabaseFailed):
        database.look(*turns("a"))
    database.fails = False

    assert database.look() == {"a"}
    assert database.known.advice.profiles.keys() == named("a")


def test_after_a_start_the_turns_that_the_command_shows_are_known(tmp_path: Path) -> None:
    old, gone = turns("old", first=NOW - 10 * 86400), turns("gone", first=NOW - 141 * 86400)
    before = [replace(row, epoch=n) for n, row in enumerate([*gone, *old, *turns("new")], 1)]
    with closing(Store(f"sqlite:///{tmp_path}/db")) as store:
        store.record({row_id(row): row for row in before}, len(before))
        config = PairingConfig(profiles=str(tmp_path / "none"))
        found = Known(store.slices, store.newest, config, lambda: NOW)
        found.look()
        assert found.advice.profiles.keys() == named("old", "new")

        later = [
            replace(row, epoch=len(before) + n) for n, row in enumerate(turns("later", first=NOW - 60), 1)
        ]
        store.record({row_id(row): row for row in later}, later[-1].epoch)
        found.look()
        assert found.advice.profiles.keys() == named("old", "new", "later")


def test_what_was_learned_comes_before_what_is_declared_and_that_before_nothing(tmp_path: Path) -> None:
    kept = tmp_path / "profiles.json"
    declared = [Profile(named("a").pop(), 100, 50), Profile("other", 100, 50)]
    kept.write_text(json.dumps({"profiles": as_text(declared)}))
    database = Database(tmp_path, PairingConfig(profiles=str(kept)))

    database.known.look()
    assert database.known.advice.profiles == {one.name: one for one in declared}
    database.rows += turns("a")
    database.known.look()

    profiles = database.known.advice.profiles
    assert profiles["other"] == declared[1]
    assert profiles[declared[0].name].held_s == 9


@pytest.mark.parametrize("looks", [0, 1])
def test_the_rules_of_the_site_hold_before_anything_is_learned_and_after(tmp_path: Path, looks: int) -> None:
    none = str(tmp_path / "none")
    site = PairingConfig(epsilon=0.5, members=3, share=("ml+art",), measure_first=False, profiles=none)
    database = Database(tmp_path, site)
    database.rows += turns("a")

    for _ in range(looks):
        database.known.look()

    advice = database.known.advice
    assert (advice.rules.epsilon, advice.rules.members, advice.measure_first) == (0.5, 3, False)
    assert [advice.rules.may_share("ml", other) for other in ("art", "physics")] == [True, False]
    assert Database(tmp_path).known.advice.measure_first


def test_of_a_workload_the_newest_200_turns_count(database: Database) -> None:
    database.look(*turns("a", count=150))
    database.look(*(replace(row, ended=row.granted + 5) for row in turns("a", 150, first=NOW - 5000)))

    # Of 300 a hundred are forgotten: 50 of 9 s are left beside 150 of 5 s.
    [found] = database.known.advice.profiles.values()
    assert found.turns == pytest.approx(200, rel=0.01)
    assert found.held_s == 5


def test_what_moves_take_is_learned_of_the_job_whose_context_was_moved(database: Database) -> None:
    rows = []
    for number in range(12):
        at = NOW - 9000 + 100 * number
        name, snapshot_s, restore_s = (("heavy", 1.0, 5.0), ("light", 12.0, 0.5))[number % 2]
        first = number < 2
        size = (0, 40)[number % 2] if first else 44
        moved = {"snapshot_s": snapshot_s * (number > 0), "restore_s": restore_s * (not first)}
        times = {"requested": at, "granted": at, "ended": at + 50}
        rows.append(replace(TURN, job_id=name, name=name, switch_bytes=size, **times, **moved))

    database.look(*rows)

    found = database.known.advice.profiles
    costs = [(one.snapshot_s, one.restore_s, one.context_bytes) for _, one in sorted(found.items())]
    assert costs == [(12, 5, 40), (1, 0.5, 4)]


async def test_what_cannot_be_read_is_logged_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(known, "EVERY_S", 0.0)
    loop, looks, again = asyncio.get_running_loop(), itertools.count(), asyncio.Event()

    def newest(*_: object) -> Iterator[Sequence[Slice]]:
        if next(looks) == 0:
            raise DatabaseFailed("away")
        loop.call_soon_threadsafe(again.set)
        yield turns("a")

    found = Known(
        lambda _wanted: iter(()), newest, PairingConfig(profiles=str(tmp_path / "none")), lambda: NOW
    )
    learning = asyncio.create_task(found.run())
    await again.wait()
    learning.cancel()
    with suppress(asyncio.CancelledError):
        await learning

    assert [vars(record)["error"] for record in caplog.records if record.msg == "profiles.failed"] == ["away"]
