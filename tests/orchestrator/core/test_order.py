"""Who is first, whatever changes meanwhile; and that it costs little to know, however many wait."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from slurm_interleave.client.core.errors import InterleaveError
from slurm_interleave.client.core.states import Context
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.commands import Grant, Operate, Verb
from slurm_interleave.orchestrator.core.core import Core
from slurm_interleave.orchestrator.core.policy import POLICIES
from slurm_interleave.orchestrator.core.remembered import Remembered
from slurm_interleave.orchestrator.core.rules import Rules
from slurm_interleave.orchestrator.services.views import group_status
from slurm_interleave.sql.rows import Key
from tests.orchestrator.core.bench import of
from tests.orchestrator.core.turns import Turns

DEVICES = ((0,), (0,), (0, 1), (1,))
NAMES = "ABCDEFGH"


def changes(bench: Turns, key: Key, data: st.DataObject) -> list[ev.Event]:
    """Return something that may happen to the member *key*."""
    now, (job, group) = bench.now, key
    call, calls = bench.new_call(), sorted(bench.core.state.attached.of(key))
    also = ("h",) if job in "AB" and group == "g" and data.draw(st.booleans()) else ()
    acquire = ev.Acquire(now, job, group, "", call, also, data.draw(st.booleans()))
    possible: list[list[ev.Event]] = [
        [acquire],
        [acquire],
        [ev.Yield(now, job, group, 0)],
        [ev.Weigh(now, job, data.draw(st.integers(0, 2)))],
        [ev.Suspended(now, job, data.draw(st.booleans()))],
        [ev.Cancel(now, call) for call in calls],
        [ev.Away(now, call, cut=True) for call in calls],
        [ev.PartOver(now, "n1", job, "")],
    ]
    return data.draw(st.sampled_from(possible))


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=30, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(data=st.data())
def test_the_order_is_the_policys_whatever_changes(policy: str, data: st.DataObject) -> None:
    """After each event the bench holds lines and places against the ranks of all waiters, worked out anew."""
    bench = Turns(Rules(policy=policy, ageing_s=15, linger_s=1))
    for name, devices in zip(NAMES, DEVICES * 2, strict=True):
        bench.join(name, devices=devices, account=data.draw(st.sampled_from("xyz")))
    for name in "AB":
        bench.join(name, "h", devices=(2,), account=data.draw(st.sampled_from("xyz")))
    for _ in range(40):
        members = list(bench.core.state.members)
        for event in changes(bench, data.draw(st.sampled_from(members)), data) if members else ():
            with contextlib.suppress(InterleaveError):
                bench.handle(event)
        if data.draw(st.booleans()):
            bench.settle()
        bench.wake(bench.now + data.draw(st.sampled_from((0.0, 0.5, 6.0))))


class Crowd:
    """A core with one group of many jobs, all but the holder waiting."""

    def __init__(self, size: int, policy: str = "fifo") -> None:
        self.core, self.now = Core(Remembered(0), 1, Rules(policy=policy, linger_s=0)), 1000.0
        self.tell(ev.NodeUp(self.now, "n1", (), ()))
        for number in range(size):
            job = ev.Registration(
                f"{number}", "g", "1", (0,), account=f"account-{number % 7}", priority=number * 37 % size
            )
            self.tell(ev.Registered(self.now, "n1", job))
        for number in range(size):
            self.acquire(f"{number}", number)

    def tell(self, event: ev.Event) -> list[Any]:
        self.now += 0.01
        return list(self.core.handle(event))

    def acquire(self, job: str, call: int) -> None:
        self.tell(ev.Acquire(self.now, job, "g", "", ev.CallId(call)))

    def handover(self) -> str:
        """Let the holder yield and the next one have its turn; return who yielded."""
        [holder] = self.core.state.leases
        commands = self.tell(ev.Yield(self.now, holder.job_id, "g", 0))
        for order in of(Operate, commands):
            context = Context.SAVED if order.verb is Verb.SNAPSHOT else Context.RESIDENT
            done = ev.OperationDone(self.now, "n1", order.operation, order.job_id, True, context, 1, 0.1, "")
            commands += self.tell(done)
        assert len(of(Grant, commands)) == 1
        return holder.job_id


def steps(work: Callable[[], object]) -> int:
    """Return how many functions *work* calls: its cost, whatever else the machine does."""
    count = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("policy", POLICIES)
def test_a_handover_costs_the_same_however_many_wait(policy: str) -> None:
    costs = {}
    for size in (20, 400):
        crowd = Crowd(size, policy)
        crowd.handover()
        costs[size] = steps(lambda crowd=crowd: [crowd.handover() for _ in range(5)])  # type: ignore[misc]

    assert costs[400] < 1.2 * costs[20]


@pytest.mark.parametrize("policy", POLICIES)
def test_the_status_of_a_group_looks_at_each_waiter_once(policy: str) -> None:
    costs = {}
    for size in (50, 400):
        core = Crowd(size, policy).core
        costs[size] = steps(lambda core=core: group_status(core, "g", 2000.0))  # type: ignore[misc]

    assert costs[400] < 1.2 * (400 / 50) * costs[50]
