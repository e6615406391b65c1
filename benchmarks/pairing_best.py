"""The most that pairing can save, by an integer program over all groups that may be: a reference."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csc_matrix

from slurm_interleave.orchestrator.pairing.rating import Candidate, Rater


def most_saved(jobs: Sequence[Candidate], rater: Rater) -> float:
    """Return the device-hours of the best disjoint groups of *jobs*."""
    good = {frozenset((place,)) for place in range(len(jobs))}
    groups: list[tuple[tuple[int, ...], float]] = []
    for size in range(2, rater.rules.members + 1):
        for places in combinations(range(len(jobs)), size):
            if all(frozenset(part) in good for part in combinations(places, size - 1)):
                verdict = rater.rate([jobs[place] for place in places])
                if verdict.good:
                    good.add(frozenset(places))
                    groups.append((places, verdict.saved))
    if not groups:
        return 0.0
    rows = [place for places, _ in groups for place in places]
    columns = [number for number, (places, _) in enumerate(groups) for _ in places]
    once = csc_matrix((np.ones(len(rows)), (rows, columns)), shape=(len(jobs), len(groups)))
    found = milp(
        -np.array([saved for _, saved in groups]),
        constraints=LinearConstraint(once, -np.inf, 1),
        integrality=np.ones(len(groups)),
        bounds=Bounds(0, 1),
        options={"time_limit": 60},
    )
    return float(-found.fun)
