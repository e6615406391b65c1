"""What changes the turn or the state of a job: `interleave yield`, `clear` and `cancel-operation`."""

from __future__ import annotations

from slurm_interleave.client.cli.interleave import main
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from tests.cli.conftest import Call
from tests.cli.demo import demo_group, orchestrator
from tests.cli.server import GivenOrchestrator

__all__ = ["orchestrator"]


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
