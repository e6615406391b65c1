"""Of a switch, which its slice tells as a whole, each job is told what is its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from slurm_interleave.client.core.states import SliceState
from slurm_interleave.orchestrator.pairing.moves import Moves
from slurm_interleave.sql.rows import Slice

TURN = Slice(
    epoch=0, job_id="", group="g", role="", uid=1, user="u", account="ml", partition="p", name="",
    backend="sim", nodes=("n1",), devices=("n1/0",), phase="", state=SliceState.YIELDED, requested=0,
    granted=0, ended=0, switched=True, switch_s=0, snapshot_s=0, restore_s=0, switch_bytes=0,
)  # fmt: skip
# Of each job: seconds of a snapshot and of a restore, and bytes.
COSTS = {"A": (12.0, 5.0, 49), "B": (1.0, 0.5, 5), "C": (3.0, 2.0, 20)}


def told(order: str, saved_ahead: str = "", begins: str = "") -> list[Slice]:
    """Return the slices of turns in this *order*, where all contexts are moved.

    Those of *saved_ahead* are saved before anybody asks, of which no slice tells; of *begins* the first turns
    were before.
    """
    rows, been, last = [], set(begins), begins[-1:]
    for job in order:
        snapshot_s = restore_s = 0.0
        size = 0
        if last not in ("", job, *saved_ahead):
            snapshot_s, size = COSTS[last][0], COSTS[last][2]
        if job in been and job != last:
            restore_s, size = COSTS[job][1], size + COSTS[job][2]
        rows.append(replace(TURN, job_id=job, snapshot_s=snapshot_s, restore_s=restore_s, switch_bytes=size))
        been.add(job)
        last = job
    return rows


def own(rows: Sequence[Slice]) -> dict[str, tuple[float, float, int]]:
    """Return what the last turn of each job tells of its moves."""
    moves = Moves()
    found = [moves.own(row) for row in rows]
    return {row.job_id: (row.snapshot_s, row.restore_s, row.switch_bytes) for row in found}


@pytest.mark.parametrize("order", ["ABAB", "ABCABC", "ABACBCAB"])
def test_each_job_is_told_its_own_snapshot_and_bytes(order: str) -> None:
    assert own(told(order)) == {job: COSTS[job] for job in set(order)}


def test_who_is_not_known_is_told_what_is_left_beside_one_that_is() -> None:
    assert own(told("ABAC", begins="C"))["C"] == (0.0, 2.0, 20)


def test_what_is_saved_ahead_tells_the_bytes_of_who_comes_back() -> None:
    found = own(told("ABABAB", saved_ahead="AB", begins="AB"))

    assert found == {"A": (0.0, 5.0, 49), "B": (0.0, 0.5, 5)}


def test_where_nothing_tells_two_jobs_apart_each_has_half_of_the_bytes() -> None:
    assert own(told("ABAB", begins="AB")) == {"A": (12.0, 5.0, 27), "B": (1.0, 0.5, 27)}


STAYED = replace(TURN, job_id="A", switched=False)


def test_a_job_that_keeps_its_devices_keeps_what_is_known_of_it() -> None:
    assert own([*told("ABA"), STAYED, STAYED])["A"] == (0.0, 0.0, 49)


def test_who_had_no_turn_while_ten_thousand_others_had_is_forgotten() -> None:
    def others(count: int) -> list[Slice]:
        return [replace(TURN, job_id=str(number), devices=("n2/0",)) for number in range(count)]

    assert own([*told("ABA"), *others(9_990), STAYED])["A"] == (0.0, 0.0, 49)
    assert own([*told("ABA"), *others(10_010), STAYED])["A"] == (0.0, 0.0, 0)


def test_other_devices_say_nothing_of_a_job() -> None:
    rows = told("AB")
    rows[1] = replace(rows[1], devices=("n1/1",))

    assert own([*rows, rows[0]])["A"] == (0.0, 0.0, 0)
