"""What Slurm says of jobs reaches the core, once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_interleave.client.core.names import GroupName
from slurm_interleave.orchestrator.daemon import Orchestrator
from slurm_interleave.orchestrator.members import RegisteredMembers
from slurm_interleave.orchestrator.pairing.profile import workload_of
from slurm_interleave.orchestrator.placement.admin_comment import AdminComment
from slurm_interleave.orchestrator.placement.squeue import SlurmJob
from slurm_interleave.orchestrator.placement.waiting import sharers
from slurm_interleave.sql.rows import Key, Slice
from slurm_interleave.sql.slices import SliceFilter
from tests.orchestrator.fake_agent import FakeAgent
from tests.orchestrator.serving import Client, eventually
from tests.placement.world import World

JOB = SlurmJob("17", frozenset({"RUNNING"}), 100, "None", "", ("n1",), account="physics")


@pytest.fixture
async def members(orchestrator: Orchestrator, n1: FakeAgent) -> RegisteredMembers:
    await n1.start("17")
    return RegisteredMembers(orchestrator.arbiter)


async def test_the_priority_and_the_account_of_a_registered_job_are_taken(
    orchestrator: Orchestrator, members: RegisteredMembers
) -> None:
    members.heard([JOB, replace(JOB, job_id="18")])

    state = orchestrator.arbiter.core.state
    assert state.priorities == {"17": 100}
    assert state.members[Key("17", "demo")].account == "physics"


async def test_a_turn_is_learned_under_the_workload_by_which_placement_looks_for_it(
    orchestrator: Orchestrator, n1: FakeAgent, client: Client
) -> None:
    named = replace(JOB, job_id="18")
    await n1.start("17", account="")
    await n1.start("18", profile="math-7B")
    RegisteredMembers(orchestrator.arbiter).heard([replace(JOB, title="grpo"), named])
    for job_id in ("17", "18"):
        await client.granted(job_id)
        await client.end(job_id)

    pages = [page async for page in orchestrator.arbiter.slices(SliceFilter())]

    rows = [row for page in pages for row in page if isinstance(row, Slice)]
    said = AdminComment(GroupName("demo"), 1, 1)
    jobs = {"17": (replace(JOB, title="grpo"), said), "18": (named, replace(said, profile="math-7B"))}
    looked_for = {job_id: sharer.workload for job_id, sharer in sharers(jobs, 0.0).items()}
    assert {row.job_id: workload_of(row) for row in rows} == looked_for
    assert looked_for == {"17": "physics/grpo/-/1x1", "18": "math-7B"}


@pytest.mark.parametrize("nothing", [0, -1])
async def test_a_priority_of_0_says_nothing(
    orchestrator: Orchestrator, members: RegisteredMembers, nothing: int
) -> None:
    members.heard([JOB])
    members.heard([replace(JOB, priority=nothing)])

    assert orchestrator.arbiter.core.state.priorities == {"17": 100}


async def test_what_is_known_is_not_told_again(
    orchestrator: Orchestrator, members: RegisteredMembers, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    members.heard([JOB])
    monkeypatch.setattr(orchestrator.arbiter, "post", lambda *events: told.extend(events))

    members.heard([JOB])
    assert told == []
    members.heard([replace(JOB, priority=7)])
    assert [event.priority for event in told] == [7]


async def test_a_suspended_job_is_told_once_and_keeps_its_weight(
    orchestrator: Orchestrator, members: RegisteredMembers, client: Client
) -> None:
    members.heard([JOB])
    stopped = replace(JOB, states=frozenset({"SUSPENDED"}), priority=0)
    members.heard([stopped])
    members.heard([stopped])

    state = orchestrator.arbiter.core.state
    assert (state.pauses.suspended, state.priorities) == ({"17"}, {"17": 100})
    [group] = (await client.status("demo")).groups
    said = {member.job_id: (member.reason, member.priority) for member in group.members}
    assert said["17"] == ("suspended in Slurm", 100)
    members.heard([JOB])
    assert state.pauses.suspended == set()


async def test_the_status_says_what_keeps_a_job_from_being_saved_for_as_long_as_it_does(
    orchestrator: Orchestrator, client: Client, n1: FakeAgent
) -> None:
    async def reason() -> str:
        [group] = (await client.status("demo")).groups
        return str({member.job_id: member.reason for member in group.members}["18"])

    await n1.start("18", caution="MPS runs")
    with_it = await reason()
    await n1.start("18")

    assert (with_it, await reason()) == ("n1: MPS runs", "")


async def test_the_status_says_what_a_waiter_waits_for(
    orchestrator: Orchestrator, members: RegisteredMembers, client: Client, n1: FakeAgent
) -> None:
    await n1.start("18")
    await client.granted("17")
    waiting = client.acquire("18")
    await client.waiting(1)
    members.heard([replace(JOB, states=frozenset({"SUSPENDED"}))])

    [group] = (await client.status("demo")).groups
    assert {member.job_id: member.reason for member in group.members if member.reason} == {
        "17": "suspended in Slurm",
        "18": "holder 17 is suspended in Slurm",
    }
    waiting.cancel()


_OVER = {
    "not in the queue": (),
    "completed": (replace(JOB, states=frozenset({"COMPLETED"})),),
    "back in the queue": (replace(JOB, states=frozenset({"PENDING"}), nodes=()),),
}


@pytest.mark.parametrize("queue", _OVER.values(), ids=_OVER)
async def test_a_holder_whose_node_is_away_is_over_when_slurm_has_no_run_of_it_twice(
    orchestrator: Orchestrator,
    members: RegisteredMembers,
    client: Client,
    n1: FakeAgent,
    queue: tuple[SlurmJob, ...],
) -> None:
    await client.granted("17")
    await n1.close()
    state = orchestrator.arbiter.core.state

    async def away() -> bool:
        return not state.nodes_up

    await eventually(away)
    assert members.listed(queue) == []
    assert set(state.leases) == {Key("17", "demo")}
    for job_id in members.listed(queue):
        assert set(state.leases) == {Key("17", "demo")}
        members.answered(job_id, runs=False)
    assert not state.leases
    assert "17" not in state.jobs


async def test_a_job_that_is_there_again_at_the_second_look_goes_on(
    orchestrator: Orchestrator, members: RegisteredMembers, client: Client
) -> None:
    await client.granted("17")
    for queue in ([], [JOB], [], [JOB]):
        assert members.listed(queue) == []

    assert set(orchestrator.arbiter.core.state.leases) == {Key("17", "demo")}


@pytest.mark.parametrize("states", [{"RUNNING"}, {"SUSPENDED"}, {"COMPLETED", "COMPLETING"}, {"CONFIGURING"}])
async def test_a_job_that_still_has_its_nodes_in_slurm_is_not_over(
    orchestrator: Orchestrator, members: RegisteredMembers, client: Client, states: set[str]
) -> None:
    await client.granted("17")
    for _ in range(3):
        members.listed([replace(JOB, states=frozenset(states))])

    assert set(orchestrator.arbiter.core.state.leases) == {Key("17", "demo")}


async def test_a_job_that_slurm_never_had_is_not_ended(
    orchestrator: Orchestrator, members: RegisteredMembers, client: Client, n1: FakeAgent
) -> None:
    await n1.start("root+8", "other", 1)
    await client.granted("a")
    await client.granted("root+8", "other")
    for _ in range(3):
        members.listed([JOB])

    assert set(orchestrator.arbiter.core.state.leases) == {Key("a", "demo"), Key("root+8", "other")}


async def test_a_run_that_began_after_the_first_look_is_not_ended(
    orchestrator: Orchestrator, n1: FakeAgent, client: Client
) -> None:
    await n1.start("17", started=orchestrator.arbiter.now() + 60)
    await client.granted("17")
    members = RegisteredMembers(orchestrator.arbiter)
    for _ in range(4):
        for job_id in members.listed([]):
            members.answered(job_id, runs=False)

    assert set(orchestrator.arbiter.core.state.leases) == {Key("17", "demo")}


@pytest.mark.parametrize("comment", ["", "interleave:v1;nonsense"])
async def test_a_job_goes_on_whose_comment_somebody_broke_and_ends_when_it_leaves_the_queue(
    orchestrator: Orchestrator, members: RegisteredMembers, client: Client, comment: str
) -> None:
    world = World()
    world.members = members  # type: ignore[assignment]
    world.slurm.queue["17"] = replace(JOB, admin_comment=comment)
    helper, leases = world.new_helper(), orchestrator.arbiter.core.state.leases
    await client.granted("17")

    for _ in range(3):
        await helper.round()
    assert set(leases) == {Key("17", "demo")}
    del world.slurm.queue["17"]
    for _ in range(2):
        await helper.round()
    assert not leases


async def test_a_job_that_the_queue_hides_is_ended_only_when_slurm_says_of_it_alone_that_it_is_gone(
    orchestrator: Orchestrator,
    members: RegisteredMembers,
    client: Client,
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.members = members  # type: ignore[assignment]
    world.slurm.queue["17"] = JOB
    world.slurm.hidden = {"17"}
    helper, leases = world.new_helper(), orchestrator.arbiter.core.state.leases
    await client.granted("17")

    for _ in range(5):
        await helper.round()
    assert set(leases) == {Key("17", "demo")}
    assert [record.message for record in caplog.records].count("job.hidden") == 1
    world.slurm.silent = True
    del world.slurm.queue["17"]
    for _ in range(5):
        await helper.round()
    assert set(leases) == {Key("17", "demo")}
    world.slurm.silent = False
    await helper.round()
    assert not leases
