"""Where jobs come to lie: beside whom, on which devices of which nodes, or nowhere yet."""

from __future__ import annotations

from dataclasses import replace

from slurm_interleave.orchestrator.pairing.advice import Advice, Sharer
from slurm_interleave.orchestrator.pairing.config import PairingConfig
from slurm_interleave.orchestrator.placement.groups import Groups
from slurm_interleave.orchestrator.placement.plan import Lane, Pending, plan
from tests.placement.wants import LANES, N1, N2, N3, TOKEN, have, want


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
