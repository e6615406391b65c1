"""Where the ranks of jobs meet: who has come, and what those who wait are told. No clock, no I/O."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass, field

from slurm_interleave.client.core.errors import BadArgument, JobEnded
from slurm_interleave.client.core.names import excerpt

RANKS_MAX = 1 << 16
ROUND_MAX = 1 << 53
PLACES_MAX = 16  # of one job: the one where nobody has come for the longest time is forgotten
SAID_MAX = 64  # meetings whose words are kept, for those who come late to one that others did not wait for


@dataclass(frozen=True)
class Arrival:
    """A rank that has come to its *round*-th meeting.

    *word* is why it cannot go on, *before* what was said at the last one.
    """

    job: str
    place: str
    round: int
    rank: int
    ranks: int
    word: str = ""
    before: str = ""

    def __post_init__(self) -> None:
        """Raise `BadArgument` for numbers that cannot be."""
        if not 1 <= self.ranks <= RANKS_MAX or not 0 <= self.rank < self.ranks:
            raise BadArgument(f"rank {self.rank} of {self.ranks}: ranks count from 0, up to {RANKS_MAX}")
        if not 1 <= self.round <= ROUND_MAX:
            raise BadArgument(f"meeting {self.round}: meetings count from 1")


@dataclass
class _Place:
    ranks: int
    over: int  # the last meeting to which all have come, or that one has left who failed
    said: dict[int, str]  # in it and in those before
    last: dict[int, int] = field(default_factory=dict)  # the last meeting that each rank has come to
    came: int = 0  # how many have come to the next one
    word: str = ""  # of the lowest of these that had one, the first that it said
    speaker: int = RANKS_MAX

    def told(self, number: int) -> str:
        """Return what was said in a meeting that is over, or in the first after it that is remembered."""
        return self.said[min(known for known in self.said if known >= number)]

    def end(self, number: int, word: str) -> None:
        """Let *number* be over."""
        self.over, self.came, self.word, self.speaker = number, 0, "", RANKS_MAX
        self.said[number] = word
        while len(self.said) > SAID_MAX:
            del self.said[min(self.said)]

    def is_of_others(self, one: Arrival) -> bool:
        """Tell whether *one* has begun anew: it was further on, or nobody would have left it behind."""
        if one.round < self.last.get(one.rank, 0):
            return True
        return one.round < self.over and one.round not in self.said and not self.told(one.round)


class Meetings:
    """Remembers what was said at each place: who fails goes on without waiting for the others.

    What was forgotten is learned from those who come: who is at a meeting has left the one before.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, dict[str, _Place]] = {}
        self._waiting: dict[str, Counter[str]] = {}  # how many, by job and place

    def knows(self, job: str) -> bool:
        """Whether ranks of *job* have met."""
        return job in self._jobs

    def keep_only(self, jobs: Container[str]) -> None:
        """Forget the places of all other jobs."""
        self._jobs = {job: places for job, places in self._jobs.items() if job in jobs}

    def arrive(self, one: Arrival) -> bool:
        """Take note of *one*, who may have come before; return whether a meeting is over by that.

        Raises `BadArgument` if others said that they are more, or fewer, or the job's ranks wait at too
        many places.
        """
        place = self._place(one)
        came_before = place.last.get(one.rank) == one.round
        place.last[one.rank] = one.round
        if one.round <= place.over:
            return False
        ahead = one.round > place.over + 1
        if ahead:
            place.end(one.round - 1, one.before)
        place.came += not came_before
        if one.word and one.rank < place.speaker:
            place.word, place.speaker = one.word, one.rank
        if place.came < place.ranks:
            return ahead
        place.end(one.round, place.word)
        return True

    def answer(self, one: Arrival) -> str | None:
        """Return what *one* is told: the word of the lowest rank that had one; None: it has to wait.

        Raises `JobEnded` for a job that was forgotten.
        """
        if one.job not in self._jobs:
            raise JobEnded(f"job {one.job} ended while rank {one.rank} waited for the other ranks")
        place = self._jobs[one.job].get(one.place)
        return place.told(one.round) if place is not None and place.over >= one.round else None

    @contextlib.contextmanager
    def waiting(self, one: Arrival) -> Iterator[None]:
        """Keep the place of *one* meanwhile."""
        counts = self._waiting.setdefault(one.job, Counter())
        counts[one.place] += 1
        try:
            yield
        finally:
            counts[one.place] -= 1
            if not counts[one.place]:
                del counts[one.place]
            if not counts:
                del self._waiting[one.job]

    def awaited(self, job: str) -> bool:
        """Whether ranks of *job* wait."""
        return job in self._waiting

    def _place(self, one: Arrival) -> _Place:
        places = self._jobs.setdefault(one.job, {})
        if one.place not in places:
            self._make_room(one, places)
        place = places.pop(one.place, None)
        if place is None or place.is_of_others(one):
            place = _Place(one.ranks, over=one.round - 1, said={one.round - 1: one.before})
        places[one.place] = place  # the last in order
        if place.ranks != one.ranks:
            text = f"rank {one.rank} says that they are {one.ranks}, and others said {place.ranks}"
            raise BadArgument(f"job {one.job}, place {excerpt(one.place)}: {text}")
        return place

    def _make_room(self, one: Arrival, places: dict[str, _Place]) -> None:
        if len(places) < PLACES_MAX:
            return
        idle = [name for name in places if name not in self._waiting.get(one.job, ())]
        if not idle:
            raise BadArgument(
                f"job {one.job}, place {excerpt(one.place)}: its ranks wait at {PLACES_MAX} other places, "
                "and no more are kept; have fewer sets meet at once, or end the ranks whose others are gone"
            )
        del places[min(idle, key=lambda name: places[name].came > 0)]  # the oldest, at best without a word
