"""A job that leaves its group open gets the partners that it fits best, by what is known of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.client.core.states import SliceState
from slurm_interleave.orchestrator.pairing.advice import Advice, Sharer, Worth
from slurm_interleave.orchestrator.pairing.config import PairingConfig
from slurm_interleave.orchestrator.pairing.known import Known
from slurm_interleave.orchestrator.pairing.profile import Profile
from slurm_interleave.orchestrator.pairing.rating import PairingRules
from slurm_interleave.orchestrator.placement.groups import Groups
from slurm_interleave.orchestrator.placement.plan import Lane, Node, Pending, Placement, plan
from slurm_interleave.sql.rows import Slice
from slurm_interleave.sql.slices import SliceFilter
from tests.placement.world import World

NODES = [Node("n1", (0, 1, 2))]
LANES = (Lane("ilva", 1), Lane("ilvb", 1))
BOOK = [Placement(name, f"auto-{name}", "", ("n1",), (n,), "ilva") for n, name in enumerate(("1", "2"))]
NOW = 1e9
GIB = 2**30
LIGHT = Profile("light", 400, 100, snapshot_s=1, restore_s=1, context_bytes=40 * GIB)
HALF, BUSY = replace(LIGHT, name="half", held_s=230), replace(LIGHT, name="busy", held_s=360)
LIVELY = replace(LIGHT, name="lively", held_s=190, spread=0.3)
PROFILES = {profile.name: profile for profile in (LIGHT, HALF, BUSY, LIVELY)}


def planned(
    jobs: dict[str, Sharer],
    waiting: Sequence[str] = ("7",),
    nodes: Sequence[Node] = NODES,
    book: Sequence[Placement] = BOOK,
    advice: Advice | None = None,
) -> tuple[dict[str, str], Groups]:
    """Return the groups that jobs which left that open come into, beside those of the *book*."""
    advice = advice or Advice(PROFILES, measure_first=True)
    groups = Groups(jobs=jobs, advice=advice, host_bytes={node.name: node.host_bytes for node in nodes})
    seated = groups.alone(book)
    groups.partners = advice.partners([groups.sharer(name) for name in waiting], seated)
    pending = [Pending(name, "auto", "", 1, 1) for name in waiting]
    return {made.job_id: made.group for made in plan(pending, book, nodes, LANES, groups)}, groups


def sharers(account: str = "ml", **workloads: str) -> dict[str, Sharer]:
    return {name[1:]: Sharer(name[1:], workload, account) for name, workload in workloads.items()}


def partner(**workloads: str) -> str:
    return planned(sharers(**workloads))[0]["7"]


def test_the_group_that_saves_the_most_is_joined_though_it_is_not_the_first() -> None:
    assert partner(_1="half", _2="light", _7="light") == "auto-2"


def test_a_group_that_would_lose_is_not_joined() -> None:
    assert partner(_1="busy", _2="light", _7="light") == "auto-2"
    assert partner(_1="busy", _2="busy", _7="half") == "auto-7"


def test_a_job_of_which_nothing_is_known_is_measured_alone_first() -> None:
    assert partner(_1="light", _2="light", _7="new") == "auto-7"
    assert partner(_1="new", _2="new", _7="light") == "auto-7"


def test_where_the_site_does_not_measure_first_the_first_group_is_joined() -> None:
    advice = Advice(PROFILES)

    assert planned(sharers(_1="new", _2="light", _7="new"), advice=advice)[0] == {"7": "auto-1"}


def test_all_who_wait_are_paired_together_and_not_each_with_whom_it_likes_best() -> None:
    jobs = sharers(_1="light", _2="half", _7="light", _8="half")
    nodes = [Node("n1", (0, 1))]
    assert planned(jobs, ("7",), nodes)[0] == {"7": "auto-1"}

    made = planned(jobs, ("7", "8"), nodes)[0]

    assert made == {"7": "auto-2", "8": "auto-1"}


async def test_who_is_left_when_a_member_ends_gets_the_best_of_those_that_wait(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    world = World(Node("n1", (0,)), advice=Advice(PROFILES, measure_first=True))
    for job_id, profile in (("1", "half"), ("2", "light")):
        submit(world, job_id, profile)
    await world.helper.round()
    for job_id, profile in (("7", "busy"), ("8", "half"), ("9", "light")):
        submit(world, job_id, profile)
    await world.helper.round()
    assert {one.job_id: one.group for one in world.book.kept.values()} == {"1": "auto-1", "2": "auto-1"}

    world.slurm.finish("2")
    caplog.clear()
    await world.helper.round()

    [paired] = [record for record in caplog.records if record.msg == "placement.paired"]
    assert re.fullmatch(
        r"1 \(half\) \+ 9 \(light\): saves 1.0 devices; duty \d+% of .*, slowdown 1.\d\d, 1.\d\d, .*",
        str(vars(paired)["reason"]),
    )
    assert {one.job_id: one.group for one in world.book.kept.values()} == {"1": "auto-1", "9": "auto-1"}


async def test_a_job_that_waits_for_good_company_says_why_in_its_comment() -> None:
    world = World(Node("n1", (0,)), advice=Advice(PROFILES, measure_first=True))
    submit(world, "1", "half")
    submit(world, "2", "half")

    await world.helper.round()

    why = world.slurm.queue["2"].admin_comment.partition(";why=")[2]
    assert why.startswith("no devices are free for it alone, and no group is good for it: auto-1: ")
    assert "115% of the time, and may for 110%" in why


def submit(world: World, job_id: str, profile: str) -> None:
    world.slurm.submit(job_id, "auto")
    comment = world.slurm.queue[job_id].admin_comment.replace(";state", f";profile={profile};state")
    world.slurm.change(job_id, admin_comment=comment, account="ml")


@pytest.mark.parametrize(
    ("limits_min", "groups"),
    [
        ((90, 60, 2880, 0), "1133"),
        ((90, 2880, 60, 2000), "1212"),
        ((0, 2880, 1000, 0), "1221"),
    ],
)
async def test_jobs_with_as_much_left_by_their_time_limits_share_devices(
    limits_min: tuple[int, ...], groups: str
) -> None:
    rules = PairingRules(members=2)
    world = World(Node("n1", (0, 1)), advice=Advice(PROFILES, rules, measure_first=True))
    for job_id, limit_min in zip("1234", limits_min, strict=True):
        submit(world, job_id, "light")
        world.slurm.change(job_id, limit_min=limit_min)

    await world.helper.round()

    made = {one.job_id: one.group for one in world.book.kept.values()}
    assert made == {job_id: f"auto-{first}" for job_id, first in zip("1234", groups, strict=True)}


def test_a_job_joins_the_one_whose_limit_is_as_far_away() -> None:
    jobs = sharers(_1="light", _2="light", _7="light")

    def joined(*hours: int) -> str:
        limited = [replace(job, hours=left) for job, left in zip(jobs.values(), hours, strict=True)]
        return planned({job.job_id: job for job in limited})[0]["7"]

    assert joined(2, 20, 30) == joined(20, 0, 0) == "auto-2"
    assert joined(20, 2, 30) == joined(0, 20, 0) == "auto-1"


def test_why_no_group_is_good_for_a_job_is_said_in_numbers() -> None:
    made, groups = planned(sharers(_1="busy", _2="lively", _7="half"), nodes=[Node("n1", (0, 1))])

    assert made == {}
    why = groups.refusal(Pending("7", "auto", "", 1, 1))
    assert "auto-1: together they need their devices for 148% of the time, and may for 110%" in why
    assert re.search(r"auto-2: job \d would take 1\.\d\d times as long; it may take 1\.10", why)


def test_a_job_may_be_joined_by_others_as_far_as_it_bears_itself() -> None:
    jobs = sharers(_1="light", _2="light", _7="light")
    nodes = [Node("n1", (0, 1))]
    assert planned(jobs, nodes=nodes)[0] == {"7": "auto-1"}

    strict = {**jobs, "1": replace(jobs["1"], epsilon=0.0), "2": replace(jobs["2"], epsilon=0.0)}
    patient = {**sharers(_1="half", _2="half", _7="half")}
    patient = {name: replace(job, epsilon=1.0) for name, job in patient.items()}

    assert planned(strict, nodes=nodes)[0] == {}
    assert planned(patient, nodes=nodes)[0] == {"7": "auto-1"}


def test_saved_state_of_all_who_take_turns_on_a_node_must_fit_into_its_memory() -> None:
    jobs = sharers(_1="light", _2="light", _3="light", _7="light", _8="light")
    nodes = [Node("n1", (0, 1), host_bytes=100 * GIB)]

    assert planned(jobs, ("7",), nodes)[0] == {"7": "auto-1"}
    made, groups = planned(jobs, ("7", "8"), nodes)
    assert list(made) == ["7"]
    why = groups.refusal(Pending("8", "auto", "", 1, 1))
    assert "node n1 would take 160.0 GiB of host memory, and there may be 100.0 GiB" in why


def test_accounts_share_devices_as_the_site_says() -> None:
    jobs = {**sharers(_1="light", _2="light"), **sharers("art", _7="light")}
    nodes = [Node("n1", (0, 1))]

    def made(*share: str) -> dict[str, str]:
        rules = PairingConfig(share=share).rules
        return planned(jobs, nodes=nodes, advice=Advice(PROFILES, rules, True))[0]

    assert made() == made("ml+physics") == {}
    assert made("*") == made("physics", "art+ml") == {"7": "auto-1"}


@pytest.mark.parametrize("other", [{"role": "sampler"}, {"gpu_type": "h200"}])
def test_jobs_of_different_roles_or_types_of_gpu_are_no_partners(other: dict[str, str]) -> None:
    jobs = sharers(_1="light", _7="light")
    apart, seated = replace(jobs["7"], **other), {"auto-1": jobs["1"]}  # type: ignore[arg-type]

    assert Advice(PROFILES).partners([jobs["7"]], seated) == {"7": "auto-1"}
    assert Advice(PROFILES).partners([apart], seated) == {}


def test_a_thousand_jobs_are_paired_each_with_good_company_alone() -> None:
    names = ("light", "half", "busy", "new")
    jobs = [Sharer(str(n), names[n % 4], f"a{n % 3}") for n in range(1000)]
    advice = Advice(PROFILES, PairingConfig(members=2).rules)

    found = advice.partners(jobs, {})

    together: dict[str, list[Sharer]] = {}
    for name, group in found.items():
        together.setdefault(group, []).append(jobs[int(name)])
    assert len(together) > 200
    assert all(len(members) == 2 and not advice.worth(members).why for members in together.values())


def turns(name: str, held: float, off: float) -> list[Slice]:
    row = Slice(
        epoch=0, job_id=name, group="g", role="", uid=1, user="u", account="ml", partition="p", name=name,
        backend="sim", nodes=("n1",), devices=("n1/0",), phase="train", state=SliceState.YIELDED, requested=0,
        granted=0, ended=0, switched=True, switch_s=2, snapshot_s=1, restore_s=1, switch_bytes=2, off_s=off,
    )  # fmt: skip
    starts = [NOW - 9000 + n * (held + off) for n in range(6)]
    return [replace(row, requested=at, granted=at, ended=at + held) for at in starts]


def known(tmp_path: Path, rows: list[Slice]) -> Known:
    def slices(wanted: SliceFilter) -> Iterator[Sequence[Slice]]:
        yield [row for row in rows if row.ended > wanted.start]

    def newest(start: float, _each: int, _most: int) -> Iterator[Sequence[Slice]]:
        return slices(SliceFilter(start=start))

    return Known(slices, newest, PairingConfig(profiles=str(tmp_path / "profiles.json")), lambda: NOW)


def worth(found: Known, *names: str) -> Worth:
    return found.advice.worth([Sharer(str(n), f"ml/{name}/-/1x1") for n, name in enumerate(names)])


def test_what_sharing_is_worth_comes_from_the_turns_that_ended(tmp_path: Path) -> None:
    found = known(tmp_path, turns("light", 100, 300) + turns("full", 300, 1))
    found.look()

    assert worth(found, "light", "light").saved > 0
    assert "nothing to share" in worth(found, "light", "full").why
    assert "measured alone first" in worth(found, "light", "new").why


def test_each_turn_is_taken_once_and_new_ones_change_what_is_known(tmp_path: Path) -> None:
    rows = turns("job", 300, 1)
    found = known(tmp_path, rows)
    found.look()
    assert worth(found, "job", "job").why

    later = [replace(r, granted=r.granted + 8000, ended=r.ended + 8000) for r in turns("job", 50, 400)]
    rows += later * 10
    found.look()

    assert worth(found, "job", "job").saved > 0


def test_a_file_of_profiles_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    found = known(tmp_path, [])
    (tmp_path / "profiles.json").write_text("{")

    with pytest.raises(BadArgument, match="is no JSON"):
        found.look()
