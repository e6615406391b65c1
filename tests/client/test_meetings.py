"""Where ranks meet, without a wire: whatever order they come in, whatever is forgotten meanwhile."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_interleave.client.core.errors import BadArgument, JobEnded
from slurm_interleave.client.core.meetings import PLACES_MAX, RANKS_MAX, SAID_MAX, Arrival, Meetings


def one(rank: int, number: int = 1, *, ranks: int = 2, place: str = "p", **more: str) -> Arrival:
    return Arrival("17", place, number, rank, ranks, **more)


def test_nobody_is_told_anything_before_all_have_come() -> None:
    meetings = Meetings()

    assert not meetings.arrive(one(1))
    assert meetings.answer(one(1)) is None
    assert meetings.arrive(one(0))

    assert [meetings.answer(one(rank)) for rank in (0, 1)] == ["", ""]


def test_all_are_told_the_word_of_the_lowest_rank_that_had_one() -> None:
    meetings = Meetings()
    for rank, word in [(2, "late"), (1, "no room"), (0, "")]:
        meetings.arrive(one(rank, ranks=3, word=word))

    assert {meetings.answer(one(rank, ranks=3)) for rank in range(3)} == {"no room"}


def test_who_asks_again_counts_once_and_is_told_the_same() -> None:
    meetings = Meetings()
    meetings.arrive(one(1))
    assert not meetings.arrive(one(1))
    meetings.arrive(one(0, word="why"))
    meetings.arrive(one(0, 2))  # goes on, while the answer of the other was lost

    assert not meetings.arrive(one(1))
    assert meetings.answer(one(1)) == "why"
    assert meetings.answer(one(0, 2)) is None


def test_after_a_restart_who_is_further_on_tells_the_others_that_the_meeting_is_over() -> None:
    again = Meetings()
    assert not again.arrive(one(1, 7))

    assert again.arrive(one(0, 8, before="why"))

    assert again.answer(one(1, 7)) == "why"
    again.arrive(one(1, 8, before="why"))
    assert again.answer(one(0, 8)) == ""


def test_ranks_that_begin_anew_at_the_same_place_do_not_meet_those_of_before() -> None:
    meetings = Meetings()
    for number in (1, 2, 3):
        for rank in (0, 1):
            meetings.arrive(one(rank, number))

    meetings.arrive(one(0, 1))

    assert meetings.answer(one(0, 1)) is None


@pytest.mark.parametrize("failures", [1, 2, 3, 2 * SAID_MAX])
def test_who_is_late_learns_of_each_meeting_that_a_rank_has_failed_and_left(failures: int) -> None:
    meetings = Meetings()
    for rank in (0, 1):
        meetings.arrive(one(rank, 1))
    before = ""
    for number in range(2, 2 + failures):
        word = f"failed {number}"
        meetings.arrive(one(0, number, word=word, before=before))
        before = word
    last = 2 + failures
    meetings.arrive(one(0, last, before=before))  # not this time: it waits, and holds the devices

    told, before = [], ""
    for number in range(2, last + 1):
        meetings.arrive(one(1, number, before=before))
        answer = meetings.answer(one(1, number))
        assert answer is not None
        told.append(answer)
        before = answer

    assert all(told[:-1])
    assert told[-min(len(told), SAID_MAX) : -1] == [f"failed {at}" for at in range(2, last)][-SAID_MAX + 1 :]
    assert [told[-1], meetings.answer(one(0, last))] == ["", ""]


def test_a_rank_of_before_that_waits_does_not_let_those_go_on_who_begin_anew() -> None:
    again = Meetings()  # was started since they met
    again.arrive(one(0, 8))

    again.arrive(one(1, 1))

    assert again.answer(one(1, 1)) is None
    again.arrive(one(0, 1))
    assert again.answer(one(1, 1)) == ""


def test_what_the_ranks_of_a_place_say_does_not_add_up() -> None:
    meetings = Meetings()
    for rank in range(2, 100):
        meetings.arrive(one(rank, ranks=100, word=f"{rank} says"))
    meetings.arrive(one(1, ranks=100, word="why"))
    meetings.arrive(one(1, ranks=100, word="another"))
    meetings.arrive(one(0, ranks=100))

    assert meetings.answer(one(5, ranks=100)) == "why"
    for number in range(2, 4 * SAID_MAX):
        meetings.arrive(one(5, number, ranks=100, word="again", before="again"))
    assert len(meetings._jobs["17"]["p"].said) == SAID_MAX


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"rank": 2}, "rank 2 of 2"),
        ({"rank": -1}, "rank -1 of 2"),
        ({"rank": 0, "ranks": 0}, "rank 0 of 0"),
        ({"rank": 0, "ranks": RANKS_MAX + 1}, f"up to {RANKS_MAX}"),
        ({"rank": 0, "number": 0}, "meeting 0"),
        ({"rank": 0, "number": 1 << 60}, "meeting 1152921504606846976"),
    ],
)
def test_numbers_that_cannot_be_are_refused(wrong: dict[str, int], says: str) -> None:
    with pytest.raises(BadArgument, match=says):
        one(**wrong)  # type: ignore[arg-type]


def test_ranks_that_do_not_agree_how_many_they_are_are_refused() -> None:
    meetings = Meetings()
    meetings.arrive(one(0))

    with pytest.raises(BadArgument, match="rank 1 says that they are 3, and others said 2"):
        meetings.arrive(one(1, ranks=3))


def test_a_job_cannot_make_up_places_without_end_nor_does_one_outlive_it() -> None:
    meetings = Meetings()
    meetings.arrive(one(0, place="waits"))
    for number in range(2 * PLACES_MAX):
        for rank in (0, 1):
            meetings.arrive(one(rank, place=f"p{number}"))

    assert len(meetings._jobs["17"]) == PLACES_MAX
    meetings.arrive(one(1, place="waits"))
    assert meetings.answer(one(0, place="waits")) == ""
    meetings.keep_only({"18"})
    assert not meetings.knows("17")


def test_a_place_where_ranks_wait_is_never_forgotten_and_one_too_many_is_refused() -> None:
    meetings = Meetings()
    waiters = [one(0, place=f"p{number}") for number in range(PLACES_MAX)]
    with contextlib.ExitStack() as waiting:
        for waiter in waiters:
            meetings.arrive(waiter)
            waiting.enter_context(meetings.waiting(waiter))

        with pytest.raises(
            BadArgument, match=f"place 'one-more': its ranks wait at {PLACES_MAX} other places"
        ):
            meetings.arrive(one(0, place="one-more"))

        for waiter in waiters:
            meetings.arrive(one(1, place=waiter.place))
            assert meetings.answer(waiter) == ""
        assert meetings.awaited("17")
    assert not meetings.awaited("17")
    meetings.arrive(one(0, place="one-more"))  # nobody waits any more: the oldest makes room


def test_who_waits_for_the_ranks_of_a_job_that_ended_is_told() -> None:
    meetings = Meetings()
    meetings.arrive(one(0))
    with meetings.waiting(one(0)):
        meetings.keep_only({"18"})

        with pytest.raises(JobEnded, match="job 17 ended while rank 0 waited"):
            meetings.answer(one(0))


@settings(deadline=None)
@given(st.data(), st.integers(2, 4), st.integers(1, 6))
def test_no_rank_leaves_a_meeting_before_all_have_come_whatever_is_forgotten_between(
    data: st.DataObject, ranks: int, rounds: int
) -> None:
    """Each rank asks until it is told; the orchestrator may forget everything after any step."""
    meetings, at, came, before = Meetings(), [1] * ranks, [0] * ranks, [""] * ranks
    words = [f"word {number}" if number % 2 else "" for number in range(rounds + 1)]
    while behind := [rank for rank in range(ranks) if at[rank] <= rounds]:
        if data.draw(st.booleans(), "forgets") and max(at) <= rounds:
            meetings = Meetings()
        for rank in data.draw(st.permutations(behind), "order"):
            asked = one(rank, at[rank], ranks=ranks, word=words[at[rank]] * (rank == 1), before=before[rank])
            meetings.arrive(asked)
            came[rank] = at[rank]
            told = meetings.answer(asked)
            if told is not None:
                assert told == words[at[rank]]
                assert min(came) >= at[rank], "one has not come"
                at[rank], before[rank] = at[rank] + 1, told
