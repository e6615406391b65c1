"""What sharing saves or loses, by cases that were counted by hand."""

from __future__ import annotations

import pytest

from slurm_interleave.client.core.gains import Gain, gain, part, total

HOUR = 3600.0


def test_two_jobs_that_fill_each_other_s_gaps_save_half_the_devices() -> None:
    """Two jobs hold 2 devices for 30 min of each hour, and are off them for the other 30: nobody waits."""
    each = gain(2, off_s=0.5 * HOUR, waited_s=0, held_s=0.5 * HOUR, share=1.0)

    both = total([each, each])

    # Apart: 2 jobs x 2 devices x 1 h. Together: 2 devices x 1 h.
    assert (both.exclusive, both.occupied, both.saved) == (4 * HOUR, 2 * HOUR, 2 * HOUR)
    assert (part(both.held, both.exclusive), part(both.held, both.occupied)) == (0.5, 1.0)
    assert each.shared == 1 * HOUR


def test_jobs_that_always_want_their_devices_lose_what_the_switches_take() -> None:
    """Each holds for 60 s, then waits for the other's 60 s and two switches of 5 s, and has no phase off."""
    each = gain(1, off_s=0, waited_s=70, held_s=60, share=0.5)

    both = total([each, each])

    # Apart: 2 x 60 s. Together: 60 + 5 + 60 + 5 s on one device.
    assert (both.exclusive, both.occupied, both.saved) == (120, 130, -10)


def test_a_job_without_a_partner_saves_nothing() -> None:
    alone = gain(8, off_s=100, waited_s=0, held_s=50, share=8)

    assert (alone.saved, alone.shared) == (0, 0)
    assert part(alone.held, alone.exclusive) == part(alone.held, alone.occupied) == pytest.approx(1 / 3)


def test_a_job_without_a_partner_that_waited_lost_that() -> None:
    assert gain(2, off_s=100, waited_s=3, held_s=50, share=2).saved == -6


def test_three_jobs_of_different_habits_add_up_to_what_the_device_was_taken_for() -> None:
    """One device for 300 s: a holds 100 and is off 200, b and c hold 80 each, are off 180 and wait 40."""
    a = gain(1, off_s=200, waited_s=0, held_s=100, share=1 / 3)
    others = gain(1, off_s=180, waited_s=40, held_s=80, share=1 / 3)

    all_three = total([a, others, others])

    assert all_three.occupied == pytest.approx(300)
    assert all_three.exclusive == 300 + 2 * 260
    assert all_three.saved == pytest.approx(300 + 520 - 300)


def test_where_the_share_is_not_known_nothing_is_gained_or_lost() -> None:
    unknown = gain(4, off_s=0, waited_s=10, held_s=50, share=0)

    assert (unknown.saved, unknown.held, unknown.waited) == (0, 200, 40)


def test_there_is_no_part_of_nothing() -> None:
    assert part(0, 0) is None
    assert total([]) == Gain(0, 0, 0, 0)
