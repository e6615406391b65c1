"""The system's clock steps, by an hour or a bit, while turns last: spans stay what they were."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.orchestrator.clock import SteadyClock
from tests.orchestrator.fake_agent import agent
from tests.orchestrator.processes import LIMIT_S, Daemon
from tests.orchestrator.serving import Client
from tests.stepped_clock import SteppedClock

HOUR_S = 3600.0
START = 1.7e9


class Host:
    """The two clocks of a host."""

    def __init__(self) -> None:
        self.steady, self.ahead = 0.0, 0.0
        self.shown = SteadyClock(self.wall, lambda: self.steady)

    def wall(self) -> float:
        return START + self.steady + self.ahead

    def passes(self, seconds: float, *, looks: int = 10) -> float:
        """Let time pass; return how much of it the clock shows."""
        before = self.shown()
        for _ in range(looks):
            self.steady += seconds / looks
            self.shown()
        return self.shown() - before


@given(st.lists(st.tuples(st.floats(0, 1e4), st.floats(-1e5, 1e5)), max_size=20))
def test_it_never_goes_back_and_a_span_is_what_passed_but_for_a_fiftieth(
    history: list[tuple[float, float]],
) -> None:
    host = Host()
    for seconds, step in history:
        host.ahead += step

        assert abs(host.passes(seconds) - seconds) <= 0.021 * seconds + 1.001


@pytest.mark.parametrize("step", [HOUR_S, -HOUR_S, 60.0, -60.0])
def test_it_follows_a_step_until_it_shows_the_time_of_day_again(
    step: float, caplog: pytest.LogCaptureFixture
) -> None:
    host = Host()
    host.passes(10)
    host.ahead = step
    with caplog.at_level(logging.WARNING):
        host.passes(abs(step) * 25, looks=1000)
        assert abs(host.shown() - host.wall()) > 1
        host.passes(abs(step) * 30, looks=1000)

    assert host.shown() == host.wall()
    [told] = [vars(record) for record in caplog.records]
    assert (told["message"], round(told["seconds"])) == ("clock.stepped", step)


@pytest.mark.parametrize("step", [0.3, -0.3])
def test_a_small_step_as_of_ntp_counts_at_once(step: float, caplog: pytest.LogCaptureFixture) -> None:
    host = Host()
    host.passes(10)
    host.ahead = step

    host.passes(0.5)

    assert host.shown() == host.wall()
    assert caplog.records == []


@pytest.fixture
def clock(tmp_path: Path) -> SteppedClock:
    return SteppedClock(tmp_path)


TURNS = "[turns]\nmax_hold_s = 600\nyield_grace_s = 0.1\nforce = true\nageing_s = 600"


@pytest.fixture
def interleaved(tmp_path: Path, clock: SteppedClock) -> Iterator[Daemon]:
    running = Daemon(tmp_path, before=clock.before, more=TURNS)
    running.start()
    yield running
    if running.process is not None and running.process.poll() is None:
        running.end(signal.SIGKILL)


def spans(rows: list[pb.Slice]) -> list[float]:
    """Return for how long each ended turn waited, and held."""
    ended = [row for row in rows if row.end]
    return [row.start - row.requested for row in ended] + [row.end - row.start for row in ended]


@pytest.mark.parametrize("step", [HOUR_S, -HOUR_S])
async def test_a_step_neither_ends_a_lease_nor_makes_a_span_of_an_hour_or_less_than_nothing(
    interleaved: Daemon, clock: SteppedClock, step: float
) -> None:
    client = Client(interleaved.address)
    async with agent(interleaved.address) as n1:
        for job in "abc":
            await n1.start(job)
        await client.granted("a")
        waits = asyncio.create_task(client.granted("b"))
        await client.waiting(1)

        clock.step(step)
        late = asyncio.create_task(client.granted("c"))  # whoever comes has the holders' limits looked at
        await client.waiting(2)
        await asyncio.sleep(1)
        assert [m.job_id for m in (await client.status("demo")).groups[0].members if m.epoch] == ["a"]
        await client.end("a")
        await asyncio.wait_for(waits, LIMIT_S)
        await client.end("b")
        await asyncio.wait_for(late, LIMIT_S)
        await client.end("c")

        rows = await client.slices()
        assert [(row.job_id, row.state) for row in rows] == [(job, "YIELDED") for job in "abc"]
        assert all(0 <= span < LIMIT_S for span in spans(rows)), rows
        assert interleaved.says("event=clock.stepped")
    await client.channel.close()


async def test_a_start_with_a_clock_that_was_set_back_shows_all_turns_and_none_less_than_nothing(
    interleaved: Daemon, clock: SteppedClock
) -> None:
    client = Client(interleaved.address)
    async with agent(interleaved.address) as n1:
        await n1.start("a")
        await client.granted("a")
        await client.end("a")
        await client.granted("a")
        await asyncio.to_thread(interleaved.end, signal.SIGKILL)
        clock.step(-HOUR_S)
        await n1.close()
        await asyncio.to_thread(interleaved.start)
        await n1.connect()

        assert sorted(row.state for row in await client.slices()) == ["RUNNING", "YIELDED"]
        await client.end("a")
        rows = await client.slices()
        assert [row.state for row in rows] == ["YIELDED", "YIELDED"]
        assert all(0 <= span < LIMIT_S for span in spans(rows)), rows
    await client.channel.close()
