"""What is said of pairing is what placement does: by the same numbers, decided by the same code."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.orchestrator.pairing.advice import Advice
from slurm_interleave.orchestrator.pairing.profile import Profile
from slurm_interleave.orchestrator.pairing.rating import PairingRules
from slurm_interleave.orchestrator.placement.explain import Explanation
from slurm_interleave.orchestrator.placement.plan import Node
from tests.placement.world import World

GIB = 2**30
LIGHT = Profile("light", 400, 100, snapshot_s=1, restore_s=1, context_bytes=40 * GIB)
PROFILES = {
    one.name: one
    for one in (LIGHT, replace(LIGHT, name="half", held_s=230), replace(LIGHT, name="busy", held_s=360))
}
SAVES = re.compile(r"group (auto-\d+): \d+ .*: saves ([\d.]+) device-hours; ")


def world(*nodes: Node) -> World:
    return World(
        *(nodes or (Node("n1", (0, 1)),)),
        advice=Advice(PROFILES, PairingRules(members=2), measure_first=True),
    )


def submit(site: World, job_id: str, profile: str, group: str = "auto", **fields: int) -> None:
    site.slurm.submit(job_id, group)
    comment = site.slurm.queue[job_id].admin_comment.replace(";state", f";profile={profile};state")
    site.slurm.change(job_id, admin_comment=comment, account="ml", **fields)


def limit(hours: int) -> dict[str, int]:
    """Return what Slurm says of a job that may run so long, before and after its start."""
    return {"limit_min": 60 * hours, "ends": int(time.time()) + 3600 * hours}


async def seat_alone(site: World, *jobs: tuple[str, str, int]) -> None:
    """Place jobs (id, profile, hours) before anything is known of them: each has devices of its own."""
    known, site.advice = site.advice, Advice(measure_first=True)
    for job_id, profile, hours in jobs:
        submit(site, job_id, profile, **limit(hours))
    await site.helper.round()
    site.advice = known


def asked(site: World, uid: int | None = None) -> Explanation:
    seen = site.helper.seen
    assert seen is not None
    return Explanation(seen, None if uid is None else seen.of_user(uid))


def explained(site: World, job_id: str, uid: int | None = None) -> list[str]:
    return list(asked(site, uid).of_job(job_id))


async def test_a_group_is_refused_for_its_nodes_memory_in_the_words_of_placement() -> None:
    site = world(Node("n1", (0,), host_bytes=60 * GIB))
    submit(site, "1", "light")
    submit(site, "7", "light")

    await site.helper.round()

    said = explained(site, "7")
    why = "saved state on node n1 would take 80.0 GiB of host memory, and there may be 60.0 GiB"
    assert f"group auto-1: 1 (light) + 7 (light): no: {why}" in said
    assert "  7: no time limit known: counts as longest; saved state 40.0 GiB a node" in said
    assert "  node n1: host memory for saved state 60.0 GiB" in said
    assert list(site.book.kept) == ["1"]
    comment = site.slurm.queue["7"].admin_comment
    assert why in comment
    assert comment.partition("why=")[2].partition(";")[0] in said[0]


@pytest.mark.parametrize(("hours", "best"), [((20, 3), "auto-1"), ((3, 20), "auto-2")])
async def test_groups_stand_in_the_order_of_the_hours_left_and_the_first_is_the_one_that_was_joined(
    hours: tuple[int, int], best: str
) -> None:
    site = world()
    await seat_alone(site, ("1", "light", hours[0]), ("2", "light", hours[1]))
    submit(site, "7", "light", **limit(30))

    await site.helper.round()

    saved = {found[1]: float(found[2]) for line in explained(site, "7") if (found := SAVES.match(line))}
    assert next(iter(saved)) == site.book.kept["7"].group == best
    assert list(saved.values()) == sorted(saved.values(), reverse=True)
    assert max(saved.values()) > 5 * min(saved.values())


async def test_jobs_that_both_wait_are_rated_with_each_other_and_then_put_together_so() -> None:
    site = world(Node("n1", (0, 1)))
    site.slurm.submit("1", "other", devices=2)
    for job_id, hours in (("2", 2), ("3", 20), ("4", 20)):
        submit(site, job_id, "light", **limit(hours))
    await site.helper.round()

    said = explained(site, "3")

    assert "; by profiles and hours, all who wait are best off with it in auto-3" in said[0]
    assert [line.partition(",")[0] for line in said[1:3]] == ["with 4", "with 2"]
    assert "host memory counts once one of them has its node" in said[3]
    site.slurm.finish("1")
    await site.helper.round()
    await site.helper.round()
    assert {job: one.group for job, one in site.book.kept.items()} == {
        "2": "auto-2",
        "3": "auto-3",
        "4": "auto-3",
    }
    assert explained(site, "3")[0].startswith("group auto-3: 3 (light) + 4 (light): saves ")


_jobs = st.lists(st.tuples(st.sampled_from(sorted(PROFILES)), st.integers(1, 30)), min_size=1, max_size=6)


@settings(deadline=None)
@given(jobs=_jobs, room=st.sampled_from([0, 60, 100, 170]))
def test_whatever_jobs_come_the_explanation_is_that_of_what_was_done(
    jobs: Sequence[tuple[str, int]], room: int
) -> None:
    asyncio.run(one_after_the_other(jobs, room))


async def one_after_the_other(jobs: Sequence[tuple[str, int]], room: int) -> None:
    site = world(Node("n1", (0, 1, 2), host_bytes=room * GIB))
    for number, (profile, hours) in enumerate(jobs, 1):
        before = {one.group for one in site.book.kept.values()}
        submit(site, str(number), profile, **limit(hours))
        await site.helper.round()
        said = explained(site, str(number))
        good = {found[1]: float(found[2]) for line in said if (found := SAVES.match(line))}
        where = site.book.kept.get(str(number))
        if where is None or where.group not in before:
            assert not good, "a group that would be good was not joined"
        else:
            assert good[where.group] >= max(good.values())
        site.slurm.change(str(number), **({} if where else {"states": frozenset({"CANCELLED"})}))


async def test_what_is_not_known_is_said_and_what_that_means() -> None:
    site = world()
    submit(site, "1", "new")
    submit(site, "2", "new")
    await site.helper.round()

    said = explained(site, "1")

    assert "nothing is known of job" in said[1]
    assert (
        "  1: no time limit known: counts as longest; saved state not known: counts as 0; not measured yet"
    ) in said
    assert "  node n1: host memory for saved state not known or without limit: not looked at" in said


async def test_a_job_that_named_its_group_is_told_what_that_is_worth_and_that_it_gets_no_others() -> None:
    site = world()
    for job_id in ("1", "2"):
        submit(site, job_id, "busy", "mine")
    submit(site, "3", "light")
    await site.helper.round()

    said = explained(site, "1")

    assert "1 (busy) + 2 (busy): by these numbers not put together: together they need" in said[0]
    assert said[1] == "job 1 named its group, so it is put with nobody else"
    assert not [line for line in said if "auto-3" in line]


async def test_all_groups_and_all_who_wait_are_told() -> None:
    site = world(Node("n1", (0,)))
    for job_id, profile in (("1", "light"), ("2", "half"), ("3", "busy")):
        submit(site, job_id, profile)
    await site.helper.round()

    told = list(asked(site).of_all())

    assert told[0].startswith("group auto-1: 2 (half) + 1 (light): saves ")
    assert told[1].startswith("3 (busy) waits for a place")


async def test_a_user_learns_of_his_jobs_and_their_groups_alone() -> None:
    site = world(Node("n1", (0, 1, 2, 3)))
    for job_id, uid, group in (("1", 7, "g"), ("2", 8, "g"), ("3", 8, "auto"), ("4", 7, "auto")):
        submit(site, job_id, "busy", group, uid=uid)
    submit(site, "5", "light", "auto", uid=9)
    await site.helper.round()

    assert {line for line in asked(site, 9).of_all() if line.startswith("group auto-5")}
    for told in (list(asked(site, 7).of_all()), explained(site, "1", 7), explained(site, "4", 7)):
        assert not re.search(r"\b[35] \(|auto-[35]", "\n".join(told))
    assert "  groups or jobs that are not yours are left out: 2" in explained(site, "4", 7)
    assert "2 (busy)" in explained(site, "1", 7)[0]
    for hidden, uid in (("3", 7), ("99", 7), ("99", None)):
        with pytest.raises(BadArgument, match=f"job {hidden} has no place and waits for none.*not yours"):
            explained(site, hidden, uid)


async def test_an_answer_changes_nothing_for_the_next_round() -> None:
    told, untold = world(), world()
    for site in (told, untold):
        await seat_alone(site, ("1", "light", 20), ("2", "half", 3))
        submit(site, "7", "light", **limit(10))
        submit(site, "8", "half", **limit(10))
        await site.helper.round()
        if site is told:
            first = [explained(site, job) for job in ("1", "7")]
            assert first == [explained(site, job) for job in ("1", "7")]
        submit(site, "9", "light", **limit(10))
        await site.helper.round()
    assert told.book.kept == untold.book.kept
