"""Which jobs share devices: the most device-hours saved, with nobody slower than he bears. Pure.

A group is rated by a rehearsal of its turns, which is dear: only those are rated that could win by their
bounds. Small sets are solved exactly. In large ones groups grow from jobs that stand near each other; then
some at a time are taken apart, and their jobs put together in the best way.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from slurm_interleave.orchestrator.pairing.rating import MOST, Candidate, Rater, Verdict

_PIECE = 8  # jobs that are solved exactly at a time
# Groups that are looked at with each one when two become one, by the number of jobs.
_PAIRS, _REACH = 8_000, 8
# Pieces that are tried again, by the square of the number of jobs, and rehearsals for that, by the number.
_TRIES, _MOST_TRIES = 3_000_000, 400
_REHEARSALS, _MOST_REHEARSALS = 80_000, 2_000
_NEAR = 1e-9


def choose(
    candidates: Iterable[Candidate], rater: Rater | None = None, *, rounds: int | None = None
) -> list[Verdict]:
    """Return the groups to be made of *candidates*, each with at least two; the others run alone.

    *rounds*: how many pieces are tried again; by default fewer, the more jobs there are.
    """
    rater = rater or Rater()
    classes = _alike(job for job in candidates if not rater.alone(job))
    several = sum(map(len, classes))
    rehearsals = min(_MOST_REHEARSALS, _REHEARSALS // max(1, several))
    found: list[Verdict] = []
    for jobs in classes:
        tries = min(_MOST_TRIES, _TRIES // len(jobs) ** 2) if rounds is None else rounds
        found += _solve_class(jobs, rater, tries, rehearsals * len(jobs) // several)
    return found


def _alike(candidates: Iterable[Candidate]) -> list[list[Candidate]]:
    """Return the candidates by what devices they want, those with as much left to do beside each other."""
    classes: dict[tuple[str, int, int], list[Candidate]] = {}
    for job in candidates:
        key = (job.device_type, job.profile.nodes, job.profile.devices)
        classes.setdefault(key, []).append(job)
    return [sorted(jobs, key=lambda job: (-job.hours, job.job_id)) for jobs in classes.values()]


def _solve_class(jobs: list[Candidate], rater: Rater, tries: int, rehearsals: int) -> list[Verdict]:
    if len(jobs) <= _PIECE:
        return exact(jobs, rater)
    groups = [Verdict((job,)) for job in jobs]
    while len(fewer := _joined(groups, rater)) < len(groups):
        groups = fewer
    dice = random.Random(len(jobs))  # noqa: S311 - it decides no secret
    enough = rater.rehearsed + rehearsals
    for _ in range(tries):
        if rater.rehearsed >= enough:
            break
        groups = _improved(groups, rater, dice)
    return [group for group in groups if len(group.members) > 1]


def _joined(groups: Sequence[Verdict], rater: Rater) -> list[Verdict]:
    """Return *groups* of which some became one with a neighbour, the most promising first."""
    groups = sorted(groups, key=_hours, reverse=True)
    left = dict(enumerate(groups))
    for _, one, other in sorted(_unions(groups, rater), reverse=True):
        if one not in left or other not in left:
            continue
        union = rater.rate((*left[one].members, *left[other].members))
        if union.good and union.saved > left[one].saved + left[other].saved + _NEAR:
            del left[one], left[other]
            left[len(groups) + one] = union  # may grow more in the next round
    return list(left.values())


def _unions(groups: Sequence[Verdict], rater: Rater) -> Iterator[tuple[float, int, int]]:
    """Yield what two neighbours may gain as one group, and their places."""
    reach = max(_REACH, _PAIRS // len(groups))
    for one, group in enumerate(groups):
        for other in range(one + 1, min(one + 1 + reach, len(groups))):
            members = (*group.members, *groups[other].members)
            gain = rater.most(members) - group.saved - groups[other].saved
            if gain > _NEAR and rater.bearable(members):
                load = sum(member.profile.share for member in members)
                yield gain * load, one, other  # who fits with few comes before who fits with all


def _hours(group: Verdict) -> float:
    return min(member.hours for member in group.members)


def _improved(groups: list[Verdict], rater: Rater, dice: random.Random) -> list[Verdict]:
    """Take some groups that stand near each other apart, and put their jobs together in the best way."""
    groups = sorted(groups, key=_hours, reverse=True)
    start = dice.randrange(len(groups))
    near = (groups[start:] + groups[:start])[: _PIECE * MOST]
    taken: list[Verdict] = []
    size = 0
    for group in dice.sample(near, len(near)):
        if size + len(group.members) <= _PIECE:
            taken.append(group)
            size += len(group.members)
    jobs = [member for group in taken for member in group.members]
    better = exact(jobs, rater, sum(group.saved for group in taken))
    if not better:
        return groups
    gone = set(map(id, taken))
    return [group for group in groups if id(group) not in gone] + _whole(jobs, better)


def _whole(piece: Sequence[Candidate], groups: Sequence[Verdict]) -> list[Verdict]:
    """Return *groups* and, as groups of one, the jobs of *piece* that are in none."""
    grouped = {member.job_id for group in groups for member in group.members}
    return [*groups, *(Verdict((job,)) for job in piece if job.job_id not in grouped)]


def exact(jobs: Sequence[Candidate], rater: Rater, floor: float = 0.0) -> list[Verdict]:
    """Return the groups of *jobs* that save the most, if that is more than *floor*; else none.

    The best by bounds is rated, and the best looked for anew, until it holds: the work doubles with each job.
    """
    worth = _bounds(jobs, rater)
    if floor:
        worth = {group: most for group, most in worth.items() if rater.bearable(_members(group, jobs))}
    verdicts: dict[int, Verdict] = {}
    while True:
        saved, groups = _best(worth, len(jobs))
        if saved <= floor + _NEAR:
            return []
        fresh = [group for group in groups if group not in verdicts]
        if not fresh:
            return [verdicts[group] for group in groups]
        for group in fresh:
            verdict = rater.rate(_members(group, jobs))
            verdicts[group], worth[group] = verdict, verdict.saved
            if not verdict.good:  # nor is a group that has more members
                worth = {other: most for other, most in worth.items() if other & group != group}


def _members(group: int, jobs: Sequence[Candidate]) -> list[Candidate]:
    return [job for place, job in enumerate(jobs) if group >> place & 1]


def _bounds(jobs: Sequence[Candidate], rater: Rater) -> dict[int, float]:
    """Return what groups save at most, by their members as bits, if each part of them may be a group."""
    found: dict[int, float] = {}
    for size in range(2, rater.rules.members + 1):
        for places in combinations(range(len(jobs)), size):
            group = sum(1 << place for place in places)
            if size == 2 or all(group & ~(1 << place) in found for place in places):
                most = rater.most([jobs[place] for place in places])
                if most > 0:
                    found[group] = most
    return found


def _best(worth: dict[int, float], count: int) -> tuple[float, tuple[int, ...]]:
    """Return the most that disjoint groups of *count* jobs are worth, and these groups."""
    by_last: list[list[tuple[int, float]]] = [[] for _ in range(count)]
    for group, most in worth.items():
        by_last[group.bit_length() - 1].append((group, most))
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for mask in range(1, 1 << count):
        last = mask.bit_length() - 1
        found = best[mask & ~(1 << last)]
        for group, most in by_last[last]:
            if group & mask == group and best[mask & ~group][0] + most > found[0]:
                others = best[mask & ~group]
                found = (others[0] + most, (*others[1], group))
        best.append(found)
    return best[-1]


def explain(job: Candidate, others: Iterable[Candidate], rater: Rater) -> list[Verdict]:
    """Return the verdict on *job* with each of *others*, the best first."""
    verdicts = [rater.rate((job, other)) for other in others if other.job_id != job.job_id]
    return sorted(verdicts, key=lambda verdict: (bool(verdict.why), -verdict.saved))
