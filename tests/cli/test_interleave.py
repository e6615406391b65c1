"""`interleave status` as a user meets it, and how `interleave` answers what it cannot do."""

from __future__ import annotations

import json
import re

import grpc
import pytest

from slurm_interleave.client.cli.interleave import main
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from tests.cli.conftest import Call
from tests.cli.demo import demo_group, orchestrator
from tests.cli.server import GivenOrchestrator

__all__ = ["orchestrator"]


def test_each_member_is_a_line_that_says_what_it_does(call: Call, orchestrator: GivenOrchestrator) -> None:
    outcome = call(main, "status")

    does = {line.split()[2]: line for line in outcome.lines[2:9]}
    expected = ["holds", "waits (1)", "faulted", "saved", "warm", "idle", "is saved"]
    assert outcome.status == 0
    for job, text in zip(range(17, 24), expected, strict=True):
        assert f" {text} " in f"{does[str(job)]} "
    assert outcome.lines[2].split()[:6] == ["demo", "locked", "17", "alice", "holds", "rollout"]
    assert "00:01:05" in does["17"]
    assert "n1/0,n2/0 n1:resident:1.00T,n2:resident:1.00T" in does["17"]
    assert "n1/0,n2/0 n1:saved:1.00T,n2:saving:1.00T" in does["23"]
    assert re.search("01:00:05 +00:02:0[0-5]", does["18"])
    assert does["19"].endswith("out of host memory")


def test_a_group_without_members_is_shown(call: Call, orchestrator: GivenOrchestrator) -> None:
    assert call(main, "status").lines[-1].split() == ["empty", "idle"]


def test_an_agent_that_is_away_is_told_on_stderr(call: Call, orchestrator: GivenOrchestrator) -> None:
    assert call(main, "status").err.startswith("node n2: its agent has been away since 2025-")


def test_what_slurm_counts_otherwise_than_the_book_is_told_on_stderr(
    call: Call, orchestrator: GivenOrchestrator
) -> None:
    del orchestrator.reply.nodes[:]
    orchestrator.reply.differences.add(node="n1", gres="ilva:g0", booked=1, used=2)

    assert call(main, "status").err == "node n1: ilva:g0: 1 by the book, 2 in use by Slurm\n"


def test_one_group_can_be_asked_for(call: Call, orchestrator: GivenOrchestrator) -> None:
    call(main, "status", "demo")

    assert orchestrator.requests[0].group == "demo"


def test_status_as_json_has_all_fields_and_numbers_as_numbers(
    call: Call, orchestrator: GivenOrchestrator
) -> None:
    data = json.loads(call(main, "status", "--json").out)

    holder, waiter = data["groups"][0]["members"][:2]
    assert (holder["epoch"], holder["phase"], holder["contexts"][0]["bytes"]) == (3, "rollout", 2**40)
    assert (waiter["epoch"], waiter["queue_place"], waiter["contexts"][0]["devices"]) == (0, 1, [0])
    assert data["groups"][1]["members"] == []
    assert [node["connected"] for node in data["nodes"]] == [True, False]


def test_no_groups_make_headings_and_success(call: Call, orchestrator: GivenOrchestrator) -> None:
    orchestrator.reply.Clear()

    outcome = call(main, "status")

    assert outcome.status == 0
    assert outcome.lines[0].split()[:2] == ["GROUP", "STATE"]
    assert len(outcome.lines) == 2
    assert call(main, "status", "-n").out == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["status", "a b"], "'a b' is not allowed"),
        (["status", "--address", "127.0.0.1:1"], "the orchestrator at 127.0.0.1:1 cannot be reached"),
        (["stats"], "No such command 'stats'"),
        (["timeline"], "Missing option '-o'"),
        (["timeline", "-o", "/nonexistent/run.html", "-j", "17"], "/nonexistent/run.html: No such file"),
        (["timeline", "-o", "x.html", "--work", "/nonexistent/work.jsonl"], "/nonexistent/work.jsonl"),
        (["timeline", "-o", "x.html", "-S", "noonish"], "now-2hours"),
    ],
)
def test_bad_usage_is_answered_in_one_line(
    call: Call, orchestrator: GivenOrchestrator, arguments: list[str], said: str
) -> None:
    outcome = call(main, *arguments)

    assert outcome.status in (1, 2)
    assert outcome.err.startswith("interleave: error: ")
    assert said in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_a_group_that_the_caller_may_not_see_is_one_line(call: Call, orchestrator: GivenOrchestrator) -> None:
    orchestrator.refusal = (grpc.StatusCode.NOT_FOUND, "no group 'other' that you may see", "UnknownGroup")

    assert call(main, "status", "other").err == "interleave: error: no group 'other' that you may see\n"


def test_without_a_command_the_help_is_shown(call: Call) -> None:
    outcome = call(main)

    assert outcome.status == 2
    for name in ("status", "timeline"):
        assert name in outcome.out


def test_status_names_those_who_use_a_device_without_a_lease(
    call: Call, orchestrator: GivenOrchestrator
) -> None:
    seen = [
        pb.Trespass(device=1, pid=4711, job_id="17", since=0, reason="it works without a lease"),
        pb.Trespass(device=0, pid=12, since=0, reason="it belongs to no interleaved job"),
    ]
    node = pb.NodeStatus(name="n1", connected=True, trespasses=seen, trespass_count=2)
    orchestrator.reply = pb.StatusReply(groups=[demo_group()], nodes=[node])

    done = call(main, "status")

    first, second = done.err.splitlines()
    assert first.startswith("node n1: trespass on device 1: process 4711 of job 17: it works without a lease")
    assert second.startswith("node n1: trespass on device 0: process 12: it belongs to no interleaved job")
