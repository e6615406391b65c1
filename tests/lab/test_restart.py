"""Existing clients of the v1alpha1 lock service, blocked while the orchestrator is killed and comes back."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from lab import LocalLab
from lab.processes import wait_until
from slurm_interleave.client.connect import ClientConfig, open_channel
from slurm_interleave.client.core.config import load_section
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc
from slurm_interleave.client.wire import timeslice_orchestrator_v1alpha1_pb2 as ts
from slurm_interleave.client.wire import timeslice_orchestrator_v1alpha1_pb2_grpc as ts_rpc

pytestmark = pytest.mark.timeout(60)

GROUP = "wire"
LIMIT_S = 20.0


class Caller:
    """A job that speaks v1alpha1 on its socket, by the environment that it finds."""

    def __init__(self, lab: LocalLab) -> None:
        self.job = lab.submit(["sleep", "300"], group=GROUP)
        text = (lab.root / "run" / "local" / "jobs" / self.job / "environment").read_text()
        address = dict(line.partition("=")[::2] for line in text.splitlines())["TIMESLICE_ORCH_ADDR"]
        self.channel = grpc.insecure_channel(address)
        self._lock: Any = ts_rpc.TimeSliceOrchestratorServiceStub(self.channel)

    def acquires(self) -> Any:
        """Return the call, which may wait."""
        return self._lock.Acquire.future(ts.AcquireRequest(job_id=self.job, group_id=GROUP))

    def yields(self) -> None:
        assert self._lock.Yield(ts.YieldRequest(job_id=self.job, group_id=GROUP), timeout=LIMIT_S).success


@pytest.fixture
def lab() -> Iterator[LocalLab]:
    with LocalLab.start() as started:
        yield started


@pytest.fixture
def callers(lab: LocalLab) -> Iterator[list[Caller]]:
    callers = [Caller(lab) for _ in range(3)]
    yield callers
    for caller in callers:
        caller.channel.close()


def waiting(lab: LocalLab) -> list[str]:
    """Return the jobs that wait, in the order of their places."""
    client = load_section(ClientConfig, "client", lab.config)
    with open_channel(client.orchestrator) as channel:
        groups = rpc.InterleaveStub(channel).GetStatus(pb.StatusRequest(group=GROUP), timeout=LIMIT_S).groups
    members = [member for group in groups for member in group.members if member.queue_place]
    return [member.job_id for member in sorted(members, key=lambda member: member.queue_place)]


def test_clients_that_were_blocked_come_back_to_their_places_after_a_kill(
    lab: LocalLab, callers: list[Caller]
) -> None:
    holder, first, second = callers
    assert holder.acquires().result(LIMIT_S).success
    calls = []
    for number, caller in enumerate((first, second), 1):
        calls.append(caller.acquires())
        assert wait_until(lambda number=number: len(waiting(lab)) == number, LIMIT_S)

    agent = lab.daemons["agent-local"].process
    assert agent is not None
    agent.send_signal(signal.SIGSTOP)  # the calls come back after the places were seen: they make none
    lab.kill9("interleaved")
    lab.start_again("interleaved")
    assert waiting(lab) == [first.job, second.job]
    agent.send_signal(signal.SIGCONT)

    assert not any(call.done() for call in calls)
    holder.yields()
    assert calls[0].result(LIMIT_S).success
    assert waiting(lab) == [second.job]
    first.yields()
    assert calls[1].result(LIMIT_S).success
