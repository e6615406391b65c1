"""`interleave status` and `interleave timeline` as a user meets them."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf import json_format

from slurm_interleave.client.cli.interleave import main
from slurm_interleave.client.core.states import Context
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from tests.cli.conftest import Outcome
from tests.cli.server import GivenOrchestrator, served
from tests.cli.turns import BEGAN, Member, take_turns

Call = Callable[..., Outcome]


def context(state: Context, node: str = "n1", device: int = 0) -> pb.ContextStatus:
    return pb.ContextStatus(node=node, devices=[device], state=state.value, bytes=2**40)


def demo_group() -> pb.GroupStatus:
    now = time.time()
    members = [
        pb.MemberStatus(
            job_id="17",
            user="alice",
            epoch=3,
            held_since=now - 65,
            phase="rollout",
            contexts=[context(Context.RESIDENT, node) for node in ("n1", "n2")],
        ),
        pb.MemberStatus(
            job_id="18",
            user="bob",
            queue_place=1,
            waiting_since=now - 3605,
            expected_start=now + 125,
            contexts=[context(Context.SAVED)],
        ),
        pb.MemberStatus(
            job_id="19", user="bob", fault="out of host memory", contexts=[context(Context.FAULTED)]
        ),
        pb.MemberStatus(job_id="20", user="bob", contexts=[context(Context.SAVED)]),
        pb.MemberStatus(job_id="21", user="bob", contexts=[context(Context.RESIDENT)]),
        pb.MemberStatus(job_id="22", user="bob", contexts=[context(Context.NONE)]),
        pb.MemberStatus(
            job_id="23", user="bob", contexts=[context(Context.SAVED), context(Context.SAVING, "n2")]
        ),
    ]
    return pb.GroupStatus(name="demo", state="locked", state_since=now - 65, members=members)


@pytest.fixture
def orchestrator(monkeypatch: pytest.MonkeyPatch) -> Iterator[GivenOrchestrator]:
    reply = pb.StatusReply(
        groups=[demo_group(), pb.GroupStatus(name="empty", state="idle")],
        nodes=[
            pb.NodeStatus(name="n1", connected=True, since=BEGAN, devices=2),
            pb.NodeStatus(name="n2", since=BEGAN),
        ],
    )
    slices, _ = take_turns([Member("17", "a", BEGAN), Member("18", "b", BEGAN + 0.4)], rounds=2)
    given = GivenOrchestrator(slices, reply)
    with served(given) as address:
        monkeypatch.setenv("INTERLEAVE_CLIENT_ORCHESTRATOR", address)
        yield given


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


def test_the_timeline_is_written_with_the_work_of_the_devices(
    call: Call, orchestrator: GivenOrchestrator, tmp_path: Path
) -> None:
    work = tmp_path / "work.jsonl"
    interval = {"start": BEGAN + 0.1, "end": BEGAN + 1.1, "job": "17", "name": "rollout", "device": 0}
    work.write_text(json.dumps(interval) + "\n")
    page = tmp_path / "run.html"

    outcome = call(main, "timeline", "-o", str(page), "-j", "17,18", "--work", str(work), "--title", "A run")

    assert (outcome.status, outcome.out) == (0, f"{page}: 8 slices of 2 jobs\n")
    assert "<title>A run</title>" in page.read_text()
    assert "device computes" in page.read_text()
    assert list(orchestrator.requests[0].job_ids) == ["17", "18"]


def test_a_timeline_of_nothing_says_so_and_writes_nothing(
    call: Call, orchestrator: GivenOrchestrator, tmp_path: Path
) -> None:
    orchestrator.slices.clear()

    outcome = call(main, "timeline", "-o", str(tmp_path / "run.html"))

    assert outcome.status == 1
    assert "no slices match" in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_a_timeline_without_what_draws_says_which_extra_to_install(
    call: Call, orchestrator: GivenOrchestrator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "vl_convert"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "vl_convert", None)

    outcome = call(main, "timeline", "-o", str(tmp_path / "run.html"), "-j", "17")

    assert outcome.status == 1
    assert "pip install 'slurm-interleave[timeline]'" in outcome.err


def test_a_timeline_can_be_drawn_from_a_file_of_slices(call: Call, tmp_path: Path) -> None:
    slices, _ = take_turns([Member("17", "a", BEGAN), Member("18", "b", BEGAN + 0.4)], rounds=1)
    file = tmp_path / "slices.json"
    file.write_text("".join(json_format.MessageToJson(item, indent=None) + "\n" for item in slices))
    page = tmp_path / "run.html"

    outcome = call(main, "timeline", "-o", str(page), "-j", "17", "--from-json", str(file))

    assert outcome.out == f"{page}: 2 slices of 1 jobs\n"


def test_yield_takes_back_what_the_job_holds(call: Call, orchestrator: GivenOrchestrator) -> None:
    orchestrator.reply = pb.StatusReply(groups=[demo_group()])

    done = call(main, "yield", "17")

    assert done.status == 0
    assert orchestrator.requests[-1] == pb.RevokeRequest(job_id="17", group="demo")
    assert done.out == "job 17: the devices of group demo were taken back\n"


def test_yield_of_a_job_that_holds_nothing_is_one_line(call: Call, orchestrator: GivenOrchestrator) -> None:
    orchestrator.reply = pb.StatusReply(groups=[demo_group()])

    done = call(main, "yield", "18")

    assert done.status == 1
    assert "job 18 holds no devices" in done.err


def test_clear_says_what_is_lost(call: Call, orchestrator: GivenOrchestrator) -> None:
    orchestrator.reply = pb.StatusReply(groups=[demo_group()])
    orchestrator.discarded = [pb.ContextStatus(node="n1", devices=[0, 1], state="saved", bytes=3 << 29)]

    done = call(main, "clear", "19")

    assert done.status == 0
    assert orchestrator.requests[-1] == pb.ClearRequest(job_id="19", group="demo")
    assert done.lines == [
        "job 19: no longer faulted in group demo",
        "job 19: lost on node n1: device state of 0,1 (saved, 1.50G)",
    ]


def test_cancel_operation_says_where_the_state_is_then(call: Call, orchestrator: GivenOrchestrator) -> None:
    orchestrator.reply = pb.StatusReply(groups=[demo_group()])
    orchestrator.contexts = [pb.ContextStatus(node=node, state="resident") for node in ("n1", "n2")]

    done = call(main, "cancel-operation", "19")
    stranger = call(main, "cancel-operation", "99")

    assert orchestrator.requests[1] == pb.CancelOperationRequest(job_id="19", group="demo")
    assert done.lines == ["job 19: on node n1: resident", "job 19: on node n2: resident"]
    assert stranger.err == "interleave: error: job 99 is in no group; see: interleave status\n"


def test_a_cancel_too_late_for_a_drain_says_so(call: Call, orchestrator: GivenOrchestrator) -> None:
    orchestrator.contexts = []

    done = call(main, "cancel-operation", "19", "--interleave-group", "demo")

    assert done.lines == ["job 19: it has left its nodes, so nothing is left to be stopped"]


def test_clear_with_keep_loses_nothing(call: Call, orchestrator: GivenOrchestrator) -> None:
    done = call(main, "clear", "17", "--interleave-group", "demo", "--keep")

    assert orchestrator.requests == [pb.ClearRequest(job_id="17", group="demo", keep=True)]
    assert done.lines == ["job 17: no longer faulted in group demo"]


def test_clear_of_a_job_that_is_not_faulted_is_one_line(call: Call, orchestrator: GivenOrchestrator) -> None:
    orchestrator.reply = pb.StatusReply(groups=[demo_group()])

    done = call(main, "clear", "17")

    assert done.status == 1
    assert done.err == "interleave: error: job 17 is not faulted; see: interleave status\n"


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
