"""An orchestrator with one group whose members do all that there is to do."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from slurm_interleave.client.core.states import Context
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from tests.cli.server import GivenOrchestrator, served
from tests.cli.turns import BEGAN, Member, take_turns


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
