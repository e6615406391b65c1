"""Which of the groups that there are a job of `auto` joins, and what keeps it out of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from slurm_interleave.client.core.names import GroupName
from slurm_interleave.orchestrator.pairing.advice import Advice, Sharer
from slurm_interleave.orchestrator.pairing.config import PairingConfig
from slurm_interleave.orchestrator.pairing.profile import Profile
from slurm_interleave.orchestrator.placement.admin_comment import AdminComment
from slurm_interleave.orchestrator.placement.groups import GroupRules, Groups
from slurm_interleave.orchestrator.placement.plan import Lane, Node, Pending, Placement, plan
from slurm_interleave.orchestrator.placement.squeue import SlurmJob
from slurm_interleave.orchestrator.placement.waiting import sharers as sharers_of
from tests.placement.world import World

GIB = 2**30
LIGHT = Profile("light", 400, 100, snapshot_s=1, restore_s=1, context_bytes=40 * GIB)
FAINT = replace(LIGHT, name="faint", held_s=20)
PROFILES = {profile.name: profile for profile in (LIGHT, FAINT)}
LANES = (Lane("ilva", 1), Lane("ilvb", 1), Lane("ilvc", 1))
NODES = [Node("n1", (0, 1)), Node("n2", (0, 1))]


def seat(
    name: str, group: str, device: int = 0, lane: str = "ilva", nodes: tuple[str, ...] = ("n1",)
) -> Placement:
    return Placement(name, group, "", nodes, (device,), lane)


def planned(
    pending: Sequence[Pending],
    book: Sequence[Placement],
    jobs: Sequence[Sharer],
    nodes: Sequence[Node] = NODES,
    groups: Groups | None = None,
) -> dict[str, str]:
    """Return the groups that *pending* come into, who are nobody's best partners."""
    made = groups or Groups(advice=Advice(PROFILES, measure_first=True))
    made.jobs = {job.job_id: job for job in jobs}
    made.host_bytes = {node.name: node.host_bytes for node in nodes}
    return {one.job_id: one.group for one in plan(pending, book, nodes, LANES, made)}


def sharers(names: str, workload: str = "faint", **more: object) -> list[Sharer]:
    return [replace(Sharer(name, workload, "ml"), **more) for name in names]  # type: ignore[arg-type]


def wants(name: str, role: str = "", nodes: int = 1, avoid: str = "") -> Pending:
    return Pending(name, "auto", role, nodes, 1, avoid=frozenset(filter(None, [avoid])))


@pytest.mark.parametrize(("first", "second", "best"), [(2, 20, "auto-3"), (20, 2, "auto-1")])
def test_of_groups_with_several_members_the_one_that_saves_the_most_is_joined(
    first: int, second: int, best: str
) -> None:
    book = [
        seat("1", "auto-1"),
        seat("2", "auto-1", lane="ilvb"),
        seat("3", "auto-3", 1),
        seat("4", "auto-3", 1, "ilvb"),
    ]
    jobs = [*sharers("12", hours=first), *sharers("34", hours=second), *sharers("7", hours=30)]

    assert planned([wants("7")], book, jobs) == {"7": best}


def test_saved_state_must_fit_on_each_node_of_a_job() -> None:
    book = [seat("1", "auto-1", nodes=("n1", "n2"))]
    jobs = sharers("17", "light", nodes=2)

    def made(*rooms: int) -> dict[str, str]:
        nodes = [Node(f"n{n}", (0,), host_bytes=room * GIB) for n, room in enumerate(rooms, 1)]
        return planned([wants("7", nodes=2)], book, jobs, nodes)

    assert made(100, 100) == made(0, 100) == {"7": "auto-1"}
    assert made(100, 60) == made(60, 100) == {}


def test_who_shares_in_a_group_that_was_found_is_not_a_matter_of_who_opened_it() -> None:
    jobs = [*sharers("1", account="art"), *sharers("7")]
    advice = Advice(PROFILES, PairingConfig(share=("*",)).rules, measure_first=True)
    groups = Groups(GroupRules(by_account=True), advice=advice)

    assert planned([replace(wants("7"), account="ml")], [seat("1", "auto-1")], jobs, groups=groups) == {
        "7": "auto-1"
    }


def test_a_job_that_cannot_have_a_node_keeps_no_other_from_the_group_there() -> None:
    made = planned([wants("7", avoid="n1"), wants("8")], [seat("1", "auto-1")], sharers("178"))

    assert made == {"7": "auto-7", "8": "auto-1"}


def test_a_sampler_keeps_no_trainer_from_the_group_that_has_no_seat_for_it() -> None:
    made = planned([wants("7", role="sampler"), wants("8")], [seat("1", "auto-1")], sharers("178"))

    assert made == {"7": "auto-7", "8": "auto-1"}


def test_accounts_that_do_not_share_are_no_partners_whether_anything_is_known_or_not() -> None:
    one, other, third = (
        replace(job, account=name) for job, name in zip(sharers("123"), ("ml", "art", "ml"), strict=True)
    )
    apart = Advice(PROFILES, PairingConfig().rules)

    assert apart.partners([one, other, third], {}) == {"1": "auto-1", "3": "auto-1"}
    unknown = replace(other, workload="new")
    assert "share no devices" in apart.worth([one, unknown]).why
    assert Advice(PROFILES).worth([one, unknown]).why == ""


def test_jobs_of_one_name_and_different_sizes_are_no_partners_and_the_larger_save_more() -> None:
    advice = Advice(PROFILES)
    small, large = sharers("12"), sharers("34", nodes=2, devices=4)

    assert advice.worth(large).saved == pytest.approx(8 * advice.worth(small).saved)
    assert "want 1 x 1 and 2 x 4 devices" in advice.worth([small[0], large[0]]).why
    assert advice.partners([small[0], large[0]], {}) == {}


def test_jobs_that_bear_anything_are_no_partners_where_that_saves_nothing() -> None:
    slow = Profile("slow", 100, 60, buffered=True, snapshot_s=40, restore_s=20)
    advice = Advice({"slow": slow})
    patient = sharers("12", "slow", epsilon=9.0)

    assert advice.partners(patient, {}) == {}
    assert advice.worth(patient).why.startswith("it would save -")


def test_what_is_known_of_a_job_is_what_its_user_and_slurm_say() -> None:
    comment = AdminComment(
        GroupName("auto"), 2, 4, "trainer", profile="mine", gpu_type="h100", max_slowdown=25
    )
    job = SlurmJob("7", frozenset({"PENDING"}), 0, "", "", (), account="ml", title="math", limit_min=150)
    known = Sharer("7", "mine", "ml", "trainer", 2, 4, 0.25, "h100", 3)

    def told(job: SlurmJob, **more: Any) -> Sharer:
        return sharers_of({"7": (job, replace(comment, **more))}, 0.0)["7"]

    assert told(job) == known
    assert told(job, profile="") == replace(known, workload="ml/math/trainer/2x4")
    assert told(replace(job, title=""), profile="").workload == "ml/7/trainer/2x4"
    assert told(job, max_slowdown=0).epsilon == 0
    assert told(job, max_slowdown=None).epsilon is None
    assert told(replace(job, limit_min=0)).hours == 0


async def test_a_job_waits_where_saved_state_would_not_fit_beside_that_of_the_group_it_could_join() -> None:
    world = World(Node("n1", (0,), host_bytes=60 * GIB), advice=Advice(PROFILES, measure_first=True))
    for job_id in "12":
        world.slurm.submit(job_id, "auto")
        comment = world.slurm.queue[job_id].admin_comment.replace(";state", ";profile=light;state")
        world.slurm.change(job_id, admin_comment=comment)

    await world.helper.round()

    assert list(world.book.kept) == ["1"]
    said = world.slurm.queue["2"].admin_comment
    assert "saved state on node n1 would take 80.0 GiB of host memory, and there may be 60.0 GiB" in said


def test_who_found_no_place_after_all_is_counted_nowhere() -> None:
    groups = Groups(GroupRules(size=3), advice=Advice(PROFILES), host_bytes={"n1": 130 * GIB})
    groups.jobs = {job.job_id: job for job in sharers("12357")}
    for name in "123":
        groups.enter(seat(name, "auto-1"))
    groups.enter(seat("5", "auto-5"))
    late = replace(wants("7"), group="auto-1")
    assert groups.refusal(late) == "group auto-1 has 3 members with a place and may have no more"

    for name, group in (("3", "auto-1"), ("5", "auto-5")):
        groups.leave(seat(name, group))

    assert groups.refusal(late) == groups.worth(late, seat("7", "auto-1")).why == ""
    assert groups.found() == ["auto-1"]


def test_nothing_is_said_of_a_group_that_was_not_found() -> None:
    groups = Groups(jobs={job.job_id: job for job in sharers("12")}, advice=Advice(PROFILES))
    for name, group in (("1", "auto-1"), ("2", "auto-1"), ("1", "mine"), ("2", "mine"), ("1", "auto-3")):
        groups.enter(seat(name, group))

    assert groups.forecast(seat("2", "mine")) == groups.forecast(seat("1", "auto-3")) == ""
    assert "1 (faint) + 2 (faint): saves" in groups.forecast(seat("2", "auto-1"))
