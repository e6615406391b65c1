"""With whom a turn was shared: who had turns on the same devices since the job's last one."""

from __future__ import annotations

import pytest

from slurm_interleave.orchestrator.core.company import Company, Shared
from slurm_interleave.sql.rows import Key

A, B, C = (Key(job, "g") for job in "abc")


def test_a_first_turn_alone_has_all_its_devices() -> None:
    assert Company().ended(A, [0, 1], 10, 20) == Shared(0.0, 2.0, ())


def test_a_partner_divides_the_devices_that_both_have() -> None:
    company = Company()
    company.ended(A, [0, 1], 0, 10)
    company.ended(B, [1, 2], 5, 20)

    assert company.ended(A, [0, 1], 15, 30) == Shared(5.0, 1.5, ("b",))


def test_who_had_no_turn_since_the_last_one_is_no_partner() -> None:
    company = Company()
    company.ended(B, [0], 0, 5)
    company.ended(A, [0], 6, 10)

    assert company.ended(A, [0], 20, 30) == Shared(10.0, 1.0, ())


def test_a_partner_counts_once_however_many_turns_it_had() -> None:
    company = Company()
    company.ended(A, [0], 0, 10)
    for end in (12, 14, 16):
        company.ended(B, [0], end - 1, end)
    company.ended(C, [0], 17, 18)

    assert company.ended(A, [0], 19, 20) == Shared(9.0, pytest.approx(1 / 3), ("b", "c"))


def test_another_group_of_the_same_job_divides_but_is_no_partner_job() -> None:
    company = Company()
    company.ended(A, [0], 0, 10)
    company.ended(Key("a", "other"), [0], 10, 20)

    assert company.ended(A, [0], 20, 30) == Shared(10.0, 0.5, ())


def test_a_member_that_has_gone_begins_anew_and_is_still_told_to_its_partner() -> None:
    company = Company()
    company.ended(A, [0], 0, 10)
    company.ended(B, [0], 10, 20)
    company.forget(B)

    assert company.ended(A, [0], 20, 30).partners == ("b",)
    assert company.ended(B, [0], 35, 40) == Shared(0.0, 1.0, ())


def test_a_great_many_partners_are_remembered_in_part_alone() -> None:
    company = Company()
    company.ended(A, [0], 0, 1)
    for number in range(100):
        company.ended(Key(f"j{number}", "g"), [0], number, number + 2)

    shared = company.ended(A, [0], 200, 201)

    assert 20 < len(shared.partners) < 40
    assert shared.share == pytest.approx(1 / (1 + len(shared.partners)))
