from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from slurm_interleave.orchestrator.pairing.advice import Advice, Sharer
from slurm_interleave.orchestrator.pairing.config import PairingConfig
from slurm_interleave.orchestrator.placement.groups import Groups
from slurm_interleave.orchestrator.placement.plan import Lane, Node, Pending, Placement, plan

TOKEN = (Lane("ilv", 2),)
LANES = (Lane("ilva", 1), Lane("ilvb", 1))
N1, N2, N3 = (Node(name, (0, 1)) for name in ("n1", "n2", "n3"))


def want(job_id: str, group: str = "demo", role: str = "", nodes: int = 1, devices: int = 1) -> Pending:
    return Pending(job_id, group, role, nodes, devices)


def have(
    job_id: str, devices: tuple[int, ...], lane: str, group: str = "demo", nodes: tuple[str, ...] = ("n1",)
) -> Placement:
    return Placement(job_id, group, "", nodes, devices, lane)


def test_two_members_of_a_group_share_a_device_in_different_lanes() -> None:
    first, second = plan([want("1"), want("2")], [], [N1, N2], LANES)

    assert (first.nodes, first.devices) == (second.nodes, second.devices)
    assert (first.lane, second.lane) == ("ilva", "ilvb")


def test_two_members_of_a_group_share_a_device_by_tokens_of_one_name() -> None:
    first, second = plan([want("1"), want("2")], [], [N1, N2], TOKEN)

    assert (first.nodes, first.devices, first.lane) == (second.nodes, second.devices, "ilv")


def test_a_full_group_opens_a_second_device_set() -> None:
    *_, third, fourth = plan([want(str(n)) for n in range(4)], [], [N1], LANES)

    assert third.devices == fourth.devices == (1,)


def test_groups_do_not_share_a_device() -> None:
    first, second = plan([want("1", "a"), want("2", "b")], [], [N1], LANES)

    assert first.devices != second.devices


def test_trainers_and_samplers_of_a_group_have_devices_of_their_own() -> None:
    first, second = plan([want("1", role="trainer"), want("2", role="sampler")], [], [N1], LANES)

    assert first.devices != second.devices


def test_a_group_opens_on_the_node_with_the_fewest_devices_in_use() -> None:
    (made,) = plan([want("2", "b")], [have("1", (0,), "ilva", "a")], [N1, N2], LANES)

    assert made.nodes == ("n2",)


def test_a_job_waits_while_nothing_is_free_and_those_behind_it_go_on() -> None:
    book = [have("1", (0,), "ilva", "a")]

    made = plan([want("2", "b", devices=2), want("3", "a")], book, [N1], LANES)

    assert [p.job_id for p in made] == ["3"]


def test_a_job_that_no_node_can_hold_waits() -> None:
    assert plan([want("1", devices=3)], [], [N1, N2], LANES) == []
    assert plan([want("1", nodes=3)], [], [N1, N2], LANES) == []


def test_a_job_of_several_nodes_gets_the_same_indices_on_each() -> None:
    book = [have("1", (0,), "ilva", "a", ("n1",))]

    (made,) = plan([want("2", "b", nodes=2)], book, [N1, N2], LANES)

    assert (made.nodes, made.devices) == (("n1", "n2"), (1,))


def test_members_of_several_nodes_meet_on_the_same_nodes() -> None:
    first, second = plan(
        [want("1", nodes=2, devices=2), want("2", nodes=2, devices=2)], [], [N1, N2, N3], LANES
    )

    assert (first.nodes, first.devices) == (second.nodes, second.devices)
    assert first.lane != second.lane


def test_a_smaller_member_joins_the_devices_of_its_group() -> None:
    (made,) = plan([want("2")], [have("1", (0, 1), "ilva", nodes=("n2",))], [N1, N2], LANES)

    assert (made.nodes, made.devices, made.lane) == (("n2",), (0,), "ilvb")


def test_a_member_waits_while_the_agent_of_its_groups_node_is_away() -> None:
    book = [have("1", (0,), "ilva", nodes=("n1",))]

    assert plan([want("2")], book, [N2], LANES) == []
    assert [p.nodes for p in plan([want("2")], book, [N1, N2], LANES)] == [("n1",)]


def test_a_member_waits_for_no_node_where_no_job_can_start() -> None:
    book = [have("1", (0,), "ilva", nodes=("n1",))]

    (made,) = plan([want("2")], book, [N2], LANES, closed={"n1"})

    assert made.nodes == ("n2",)


def test_a_member_opens_another_set_where_the_one_on_an_absent_node_is_full() -> None:
    book = [have("1", (0,), "ilva", nodes=("n1",)), have("2", (0,), "ilvb", nodes=("n1",))]

    (made,) = plan([want("3")], book, [N2], LANES)

    assert made.nodes == ("n2",)


def test_a_job_that_has_its_place_is_not_placed_again() -> None:
    assert plan([want("1")], [have("1", (0,), "ilva")], [N1], LANES) == []


def test_an_overfull_book_gives_no_more_seats_and_no_error() -> None:
    book = [have(str(n), (0,), "ilva") for n in range(3)]

    (made,) = plan([want("9")], book, [N1], (Lane("ilva", 1),))

    assert made.devices == (1,)


NAMES = [f"n{i}" for i in range(5)]
some_nodes = st.one_of(st.just(frozenset()), st.frozensets(st.sampled_from(NAMES), min_size=1, max_size=3))
pendings = st.builds(
    Pending,
    job_id=st.uuids().map(str),
    group=st.sampled_from("abc"),
    role=st.sampled_from(["", "trainer", "sampler"]),
    nodes=st.integers(1, 3),
    devices=st.integers(1, 3),
    avoid=some_nodes,
    only=some_nodes,
)
queues = st.lists(pendings, max_size=14)
fleets = st.lists(
    st.builds(
        Node,
        name=st.sampled_from(NAMES),
        devices=st.sets(st.integers(0, 4), min_size=1).map(lambda found: tuple(sorted(found))),
    ),
    max_size=4,
    unique_by=lambda node: node.name,
)
modes = st.sampled_from([TOKEN, LANES, (Lane("ilv", 3),), (Lane("ilva", 1),)])


def assert_no_seat_is_given_twice(
    book: list[Placement], lanes: tuple[Lane, ...]
) -> Counter[tuple[str, str, int]]:
    """Return how many sit on each device of each node, by lane."""
    seats = {lane.name: lane.seats for lane in lanes}
    taken = Counter((p.lane, node, device) for p in book for node in p.nodes for device in p.devices)
    assert all(count <= seats[lane] for (lane, _, _), count in taken.items())
    return taken


@given(queues, queues, fleets, modes)
def test_no_seat_is_given_twice_and_no_device_that_is_not_there(
    first: list[Pending], second: list[Pending], fleet: list[Node], lanes: tuple[Lane, ...]
) -> None:
    book = plan(first, [], fleet, lanes)
    book += plan(second, book, fleet, lanes)

    there = {node.name: set(node.devices) for node in fleet}
    taken = assert_no_seat_is_given_twice(book, lanes)
    assert all(device in there[node] for _, node, device in taken)


@given(queues, fleets, modes)
def test_each_job_gets_what_it_asked_for_or_nothing(
    queue: list[Pending], fleet: list[Node], lanes: tuple[Lane, ...]
) -> None:
    asked = {job.job_id: job for job in queue}

    for made in plan(queue, [], fleet, lanes):
        job = asked.pop(made.job_id)
        assert (made.group, made.role) == (job.group, job.role)
        assert (len(set(made.nodes)), len(set(made.devices))) == (job.nodes, job.devices)


@given(queues, fleets, modes)
def test_a_device_belongs_to_one_group_and_role(
    queue: list[Pending], fleet: list[Node], lanes: tuple[Lane, ...]
) -> None:
    owners: dict[tuple[str, int], set[tuple[str, str]]] = {}
    for made in plan(queue, [], fleet, lanes):
        for node in made.nodes:
            for device in made.devices:
                owners.setdefault((node, device), set()).add((made.group, made.role))

    assert all(len(found) == 1 for found in owners.values())


@given(queues, fleets, modes, st.randoms())
def test_the_same_input_gives_the_same_plan_in_whatever_order_the_nodes_come(
    queue: list[Pending], fleet: list[Node], lanes: tuple[Lane, ...], random: object
) -> None:
    shuffled = list(fleet)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    assert plan(queue, [], fleet, lanes) == plan(queue, [], shuffled, lanes)


@given(queues, queues, fleets, modes)
def test_planning_in_two_rounds_gives_what_one_round_gives(
    first: list[Pending], second: list[Pending], fleet: list[Node], lanes: tuple[Lane, ...]
) -> None:
    early = plan(first, [], fleet, lanes)
    placed = {p.job_id for p in early}
    left = [job for job in first if job.job_id not in placed]

    late = plan([*left, *second], early, fleet, lanes)

    assert [*early, *late] == plan([*first, *second], [], fleet, lanes)


@given(queues, queues, fleets, modes)
def test_the_components_of_one_job_have_nodes_of_their_own_or_none_has_a_place(
    alone: list[Pending], parts: list[Pending], fleet: list[Node], lanes: tuple[Lane, ...]
) -> None:
    queue = [replace(job, together="xyz"[number % 3]) for number, job in enumerate(parts)]

    made = plan([*queue, *alone], [], fleet, lanes)

    places = {place.job_id: place for place in made}
    for name in "xyz":
        wanted = [job.job_id for job in queue if job.together == name]
        nodes = [node for job_id in wanted if job_id in places for node in places[job_id].nodes]
        assert len(set(nodes)) == len(nodes)
        assert len([job_id for job_id in wanted if job_id in places]) in (0, len(wanted))
    assert_no_seat_is_given_twice(made, lanes)


@given(queues, fleets, modes)
def test_no_job_gets_a_node_that_it_cannot_have(
    queue: list[Pending], fleet: list[Node], lanes: tuple[Lane, ...]
) -> None:
    asked = {job.job_id: job for job in queue}

    for made in plan(queue, [], fleet, lanes):
        assert all(map(asked[made.job_id].may_have, made.nodes))


@given(queues, fleets, modes)
def test_a_job_left_waiting_would_wait_if_it_were_the_only_one_too(
    queue: list[Pending], fleet: list[Node], lanes: tuple[Lane, ...]
) -> None:
    made = plan(queue, [], fleet, lanes)

    assert plan(queue, made, fleet, lanes) == []
    assert not any(plan([job], made, fleet, lanes) for job in queue)


def test_a_job_whose_nodes_are_full_holds_up_none_of_its_size() -> None:
    elsewhere = replace(want("1"), only=frozenset({"n9"}))

    (made,) = plan([elsewhere, want("2", "b")], [], [N1], LANES)

    assert made.job_id == "2"


def auto(job_id: str, account: str = "", devices: int = 1) -> Pending:
    return Pending(job_id, "auto", "", 1, devices, account)


def test_jobs_that_ask_for_any_group_come_together_in_one_of_their_own() -> None:
    first, second, third = plan([auto("7"), auto("8"), auto("9")], [], [N1], LANES)

    assert (first.group, second.group, third.group) == ("auto-7", "auto-7", "auto-9")
    assert (first.devices, second.devices, third.devices) == ((0,), (0,), (1,))


def test_a_job_that_asks_for_any_group_comes_into_none_that_was_named() -> None:
    (made,) = plan([auto("7")], [have("1", (0,), "ilva", "mine")], [N1], LANES)

    assert (made.group, made.devices) == ("auto-7", (1,))


def test_a_job_joins_the_first_group_that_has_a_set_of_its_size_with_a_seat() -> None:
    book = [have("1", (0, 1), "ilva", "auto-1", ("n1",)), have("2", (0,), "ilva", "auto-2", ("n2",))]

    small, large = plan([auto("7"), auto("8", devices=2)], book, [N1, N2], LANES)

    assert (small.group, small.nodes, small.lane) == ("auto-2", ("n2",), "ilvb")
    assert (large.group, large.devices, large.lane) == ("auto-1", (0, 1), "ilvb")


def test_a_job_that_asks_for_any_group_comes_into_none_of_another_account() -> None:
    accounts = {"1": "physics", "7": "biology", "8": "physics"}
    jobs = {name: Sharer(name, account=account) for name, account in accounts.items()}
    groups = Groups(jobs=jobs, advice=Advice(rules=PairingConfig().rules))
    book = [have("1", (0,), "ilva", "auto-1")]

    other, same = plan([auto("7", "biology"), auto("8", "physics")], book, [N1], LANES, groups)

    assert (other.group, other.devices) == ("auto-7", (1,))
    assert (same.group, same.devices) == ("auto-1", (0,))


def test_a_job_that_asks_for_any_group_waits_for_none_whose_node_is_away() -> None:
    (made,) = plan([auto("7")], [have("1", (0,), "ilva", "auto-1", ("gone",))], [N1], LANES)

    assert (made.group, made.nodes) == ("auto-7", ("n1",))
