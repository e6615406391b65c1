"""What each plan keeps, whatever nodes and jobs there are."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from slurm_interleave.orchestrator.placement.plan import Lane, Node, Pending, Placement, plan
from tests.placement.wants import LANES, TOKEN

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
