"""Several movers of one job: in which order they are asked, and what becomes of it if one fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from typing_extensions import override

from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent.backends.combined import Combined
from slurm_interleave.node_agent.backends.protocol import Mover, Target
from slurm_interleave.node_agent.contexts import Outcome

SAVED, BACK = Outcome(Context.SAVED, 5), Outcome(Context.RESIDENT, 5)
STAYS, AWAY = Outcome(Context.RESIDENT, error="busy"), Outcome(Context.SAVED, error="no room")
LOST = Outcome(Context.FAULTED, error="lost")


class Part(Mover):
    """Answers as told; `asked` is what all parts were asked, with the time that was left."""

    name: ClassVar[str] = "part"
    in_app: ClassVar[bool] = False

    def __init__(
        self, asked: list[tuple[str, str, float]], called: str, saves: Any = SAVED, brings: Any = BACK
    ) -> None:
        self._asked, self._called = asked, called
        self._saves, self._brings = saves, brings

    @override
    async def snapshot(self, target: Target) -> Outcome:
        return self._answer("save", target, self._saves)

    @override
    async def restore(self, target: Target) -> Outcome:
        return self._answer("bring", target, self._brings)

    @override
    async def discard(self, target: Target) -> Outcome:
        return self._answer("forget", target, Outcome(Context.NONE))

    def _answer(self, verb: str, target: Target, outcome: Any) -> Outcome:
        self._asked.append((verb, self._called, target.deadline_s))
        if isinstance(outcome, Exception):
            raise outcome
        answer: Outcome = outcome
        return answer


def three(asked: list[tuple[str, str, float]], **ways: Sequence[Any]) -> Combined:
    """The parts a, b and c; *ways* names what each answers to a save and to a bring."""
    return Combined([Part(asked, called, *ways.get(called, ())) for called in "abc"])


def words(asked: list[tuple[str, str, float]]) -> str:
    return " ".join(f"{verb} {called}," for verb, called, _ in asked).strip(",")


TARGET = Target("17", (0,), 30.0)


async def test_the_application_is_saved_first_and_comes_back_last() -> None:
    asked: list[tuple[str, str, float]] = []
    parts = three(asked)

    assert await parts.snapshot(TARGET) == Outcome(Context.SAVED, 15)
    assert await parts.restore(TARGET) == Outcome(Context.RESIDENT, 15)
    assert words(asked) == "save a, save b, save c, bring c, bring b, bring a"


async def test_all_parts_share_the_time_and_all_forget() -> None:
    asked: list[tuple[str, str, float]] = []
    parts = three(asked)

    await parts.snapshot(TARGET)
    await parts.discard(TARGET)

    left = [seconds for verb, _, seconds in asked if verb == "save"]
    assert 30.0 >= left[0] > left[1] > left[2]
    assert words(asked).endswith("forget a, forget b, forget c")


@pytest.mark.parametrize(
    ("ways", "ends", "happens"),
    [
        ({"c": (STAYS,)}, (Context.RESIDENT, "busy"), "save a, save b, save c, bring b, bring a"),
        (
            {"b": (STAYS,), "a": (SAVED, AWAY)},
            (Context.FAULTED, "busy; and then, undoing it, part: no room"),
            "",
        ),
        ({"b": (LOST,)}, (Context.FAULTED, "lost"), "save a, save b, bring a"),
        ({"b": (ValueError("bug"),)}, (Context.FAULTED, "backend part failed: ValueError('bug')"), ""),
    ],
)
async def test_a_save_that_fails_is_undone_the_last_part_first(
    ways: dict[str, Sequence[Any]], ends: tuple[Context, str], happens: str
) -> None:
    asked: list[tuple[str, str, float]] = []

    outcome = await three(asked, **ways).snapshot(TARGET)

    assert (outcome.context, outcome.error) == ends
    assert happens in ("", words(asked))


@pytest.mark.parametrize(
    ("ways", "ends"),
    [
        ({"a": (SAVED, AWAY)}, (Context.SAVED, "no room")),
        ({"a": (SAVED, AWAY), "c": (STAYS,)}, (Context.FAULTED, "no room; and then, undoing it, part: busy")),
    ],
)
async def test_a_restore_that_fails_is_undone_too(
    ways: dict[str, Sequence[Any]], ends: tuple[Context, str]
) -> None:
    asked: list[tuple[str, str, float]] = []

    outcome = await three(asked, **ways).restore(TARGET)

    assert (outcome.context, outcome.error) == ends
    assert words(asked) == "bring c, bring b, bring a, save b, save c"
