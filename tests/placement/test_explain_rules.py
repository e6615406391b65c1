"""What is said of pairing keeps to the rules that placement does, and to what a user may know."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from slurm_interleave.orchestrator.pairing.advice import Advice
from slurm_interleave.orchestrator.pairing.profile import Profile
from slurm_interleave.orchestrator.pairing.rating import PairingRules
from slurm_interleave.orchestrator.placement.explain import Explanation
from slurm_interleave.orchestrator.placement.plan import Node
from tests.placement.world import CONFIG, World

GIB = 2**30
LIGHT = Profile("light", 400, 100, snapshot_s=1, restore_s=1, context_bytes=40 * GIB)


def world(*devices: int, room: int = 0, members: int = 2, group_size: int = 0) -> World:
    return World(
        Node("n1", devices, host_bytes=room * GIB),
        config=replace(CONFIG, group_size=group_size),
        advice=Advice({"light": LIGHT}, PairingRules(members=members), measure_first=True),
    )


def submit(site: World, jobs: Iterable[str], group: str = "auto", more: str = "", **fields: int) -> None:
    for job_id in jobs:
        site.slurm.submit(job_id, group)
        said = site.slurm.queue[job_id].admin_comment.replace("role=;state", f"{more};profile=light;state")
        site.slurm.change(job_id, admin_comment=said, account="ml", **fields)


async def crowd(site: World, *devices: str) -> None:
    """Let the jobs that `devices` name, one text for each, be alone or together on a device of their own."""
    known, site.advice = site.advice, Advice(measure_first=True)
    for jobs in devices:
        submit(site, jobs[0])
    await site.helper.round()
    site.advice = known
    for jobs in devices:
        submit(site, jobs[1:], f"auto-{jobs[0]}")
    await site.helper.round()


def explanation(site: World, uid: int | None = None) -> Explanation:
    seen = site.helper.seen
    assert seen is not None
    return Explanation(seen, None if uid is None else seen.of_user(uid))


def explained(site: World, job_id: str, uid: int | None = None) -> list[str]:
    return list(explanation(site, uid).of_job(job_id))


def about(lines: Iterable[str], start: str) -> list[str]:
    return [line.partition(": ")[2] for line in lines if line.startswith(start)]


async def test_a_job_is_rated_elsewhere_as_if_it_had_left_its_group() -> None:
    site = world(0, 1, room=100)
    await crowd(site, "12", "3")

    said = explained(site, "2")

    assert about(said, "group auto-1") == [said[0].partition(": ")[2]]  # once, as it is
    [other] = about(said, "group auto-3")  # 120 GiB if its state counted for both
    assert other.startswith("2 (light) + 3 (light): saves ")


async def test_groups_without_a_seat_are_named_and_so_is_who_finds_none() -> None:
    site = world(0, members=4)
    await crowd(site, "12")
    submit(site, "7")
    submit(site, "8", "mine")
    await site.helper.round()

    assert "no seat is free on devices as it wants them, or 24 groups come before: auto-1" in explained(
        site, "7"
    )
    seated = explained(site, "1")
    why = "1 (light) + 2 (light) + 7 (light): no: no seat is free on devices as 7 wants them"
    assert about(seated, "group auto-1, joined by 7") == [why]
    assert not about(seated, "group auto-1, joined by 8")


@pytest.mark.parametrize("other", ["role=sampler", "role=;gpu_type=h100"])
async def test_who_waits_is_no_partner_of_another_kind_nor_of_one_that_named_its_group(other: str) -> None:
    site = world(0)
    submit(site, "1", "other")
    submit(site, "2", "other")
    submit(site, "3")
    submit(site, "4", more=other)
    submit(site, "5", "other")
    await site.helper.round()

    said = explained(site, "3")

    why = "3 (light) + 4 (light): no: they have different roles or ask for different types of GPU"
    assert about(said, "with 4, which waits too") == [why]
    assert not about(said, "with 5")


async def test_a_sampler_is_rated_with_the_groups_of_samplers() -> None:
    site = world(0, 1)
    known, site.advice = site.advice, Advice(measure_first=True)
    submit(site, "12", more="role=sampler")
    await site.helper.round()
    site.advice = known
    await site.helper.round()

    [other] = about(explained(site, "1"), "group auto-2")
    assert ": saves " in other


async def test_what_is_good_comes_before_what_is_not() -> None:
    site = world(0, 1, 2)
    known, site.advice = site.advice, Advice(measure_first=True)
    submit(site, "13", limit_min=60)
    submit(site, "2", more="role=;max_slowdown=0")
    await site.helper.round()
    site.advice = known
    await site.helper.round()

    said = explained(site, "1")

    assert [line.partition(":")[0] for line in said[:3]] == ["group auto-1", "group auto-3", "group auto-2"]
    assert ": saves " in said[1]
    assert "times as long; it may take 1.00" in said[2]


async def test_how_large_groups_may_be_and_the_hours_that_are_left_are_said() -> None:
    site = world(0, 1, group_size=1)
    await crowd(site, "1", "2")
    site.slurm.change("1", limit_min=60)
    await site.helper.round()

    said = explained(site, "1")

    assert about(said, "group auto-2")[0].endswith("has 1 members with a place and may have no more")
    assert "  1: at most 1 h left; saved state 40.0 GiB a node" in said


async def test_a_group_that_users_named_is_held_to_the_memory_of_its_nodes_too() -> None:
    site = world(0, room=60)
    submit(site, "12", "mine")
    await site.helper.round()

    [said] = about(explanation(site).of_all(), "group mine")

    assert "not put together: saved state on node n1 would take 80.0 GiB of host memory" in said


async def test_a_user_is_told_of_his_groups_and_arrays_and_of_no_others_that_wait() -> None:
    site = world(0)
    submit(site, "1", "ours", uid=7)
    submit(site, "2", "ours", uid=8)
    await site.helper.round()
    submit(site, "34", uid=7)
    submit(site, "5", uid=8)
    site.slurm.submit_array("6", "0,1", group="auto")
    site.slurm.change("6", account="ml", uid=7)
    await site.helper.round()

    told = list(explanation(site, 7).of_all())

    assert about(told, "group ours")[0].startswith("1 (light) + 2 (light): ")
    assert [line.split()[0] for line in told if "waits for a place" in line] == ["3", "4", "6_0", "6_1"]
    assert about(explained(site, "3", 7), "with 4")
    assert not about(explained(site, "3", 7), "with 5")
