"""Who waits is paired anew whenever that could change the answer, and not else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurm_interleave.orchestrator.pairing.advice import Advice, Sharer
from slurm_interleave.orchestrator.pairing.profile import Profile
from slurm_interleave.orchestrator.placement.groups import Groups
from slurm_interleave.orchestrator.placement.pairing import Pairing
from slurm_interleave.orchestrator.placement.plan import Pending, Placement

LIGHT = Profile("light", 400, 100, snapshot_s=1, restore_s=1)
JOBS = {name: Sharer(name, "light", "ml") for name in "12789"}


@dataclass
class Counting(Advice):
    """Counts how often it is asked for partners."""

    asked: int = 0

    def partners(self, waiting: Sequence[Sharer], seated: Mapping[str, Sharer]) -> dict[str, str]:
        self.asked += 1
        return super().partners(waiting, seated)


def book(**groups: str) -> list[Placement]:
    return [Placement(name[1:], group, "", ("n1",), (0,), "ilva") for name, group in groups.items()]


def pending(names: str, group: str = "auto") -> list[Pending]:
    return [Pending(name, group, "", 1, 1) for name in names]


async def test_partners_are_found_anew_when_somebody_comes_or_ends_or_is_learned_of() -> None:
    pairing, advice = Pairing(), Counting({"light": LIGHT})

    async def partners(waiting: str, placed: list[Placement], known: Advice = advice) -> Mapping[str, str]:
        return await pairing.partners(Groups(jobs=JOBS, advice=known), pending(waiting), placed)

    full = book(_1="auto-1", _2="auto-1")
    assert await partners("7", full) == {}
    assert await partners("78", full) == {"7": "auto-7", "8": "auto-7"}  # one has come
    left = book(_1="auto-1")
    assert await partners("78", left) == {"7": "auto-1", "8": "auto-1"}  # one has ended
    assert await partners("78", left, Advice()) == {}  # nothing is known any more
    assert await partners("78", left) == {"7": "auto-1", "8": "auto-1"}
    before = advice.asked
    assert await partners("78", left) == {"7": "auto-1", "8": "auto-1"}
    assert advice.asked == before


async def test_jobs_that_have_chosen_their_group_get_no_partners() -> None:
    groups = Groups(jobs=JOBS, advice=Advice({"light": LIGHT}))

    found = await Pairing().partners(
        groups, [*pending("7"), *pending("8", "mine")], book(_1="ours", _2="auto-2")
    )

    assert found == {"7": "auto-2"}


def test_who_is_alone_in_a_group_that_was_found_for_it_can_be_joined() -> None:
    placed = book(_1="auto-1", _2="auto-1", _7="auto-7", _8="mine", _9_3="auto-9_3")

    found = Groups(jobs=JOBS).alone(placed)

    assert {name: job.job_id for name, job in found.items()} == {"auto-7": "7", "auto-9_3": "9_3"}
    assert found["auto-9_3"].workload == "light"  # as the array whose task it is
