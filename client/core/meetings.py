"""Where the ranks of jobs meet: who has come, and what those who wait are told. No clock, no I/O."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.client.core.names import excerpt

RANKS_MAX = 1 << 20
ROUND_MAX = 1 << 53
PLACES_MAX = 16  # of one job: the one where nobody has met for the longest time is forgotten


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
    over: int  # the last meeting to which all have come
    said: str  # in it
    words: dict[int, str] = field(default_factory=dict)  # of those who have come to the next one


class Meetings:
    """Remembers the last meeting of each place alone: no rank gets further ahead of another.

    What was forgotten is learned from those who come: who is at a meeting has left the one before.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, dict[str, _Place]] = {}

    def knows(self, job: str) -> bool:
        """Whether ranks of *job* have met."""
        return job in self._jobs

    def keep_only(self, jobs: Container[str]) -> None:
        """Forget the places of all other jobs."""
        self._jobs = {job: places for job, places in self._jobs.items() if job in jobs}

    def arrive(self, one: Arrival) -> bool:
        """Take note of *one*, who may have come before; return whether a meeting is over by that.

        Raises `BadArgument` if others said that they are more, or fewer.
        """
        place = self._place(one)
        if one.round <= place.over:
            return False
        ahead = one.round > place.over + 1
        if ahead:
            place.over, place.said, place.words = one.round - 1, one.before, {}
        place.words[one.rank] = one.word
        if len(place.words) < place.ranks:
            return ahead
        said = next((place.words[rank] for rank in sorted(place.words) if place.words[rank]), "")
        place.over, place.said, place.words = one.round, said, {}
        return True

    def answer(self, one: Arrival) -> str | None:
        """Return what *one* is told: the word of the lowest rank that had one; None: it has to wait."""
        place = self._jobs.get(one.job, {}).get(one.place)
        return place.said if place is not None and place.over >= one.round else None

    def _place(self, one: Arrival) -> _Place:
        places = self._jobs.setdefault(one.job, {})
        place = places.pop(one.place, None)
        if place is None or one.round < place.over:  # these are others, who have just begun
            place = _Place(one.ranks, over=one.round - 1, said=one.before)
        places[one.place] = place  # the last in order
        if place.ranks != one.ranks:
            text = f"rank {one.rank} says that they are {one.ranks}, and others said {place.ranks}"
            raise BadArgument(f"job {one.job}, place {excerpt(one.place)}: {text}")
        while len(places) > PLACES_MAX:
            del places[next((name for name in places if not places[name].words), next(iter(places)))]
        return place
