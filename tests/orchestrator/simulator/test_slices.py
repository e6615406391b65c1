"""The site's own accounting, as `sinterleave --json` prints it, is a trace."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slurm_interleave.client.cli import render
from slurm_interleave.client.cli.columns import COLUMNS
from slurm_interleave.client.cli.fields import by_name, parse_format
from slurm_interleave.client.cli.rows import of_slice
from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.orchestrator.core.rules import Rules
from slurm_interleave.orchestrator.simulator.program import Cost
from slurm_interleave.orchestrator.simulator.traces import jobs_in
from slurm_interleave.orchestrator.simulator.world import World

DAY = 1.8e9
BOTH = ("n1/0", "n2/0")


def turn(job: str, asked: float, granted: float, ended: float, **more: Any) -> pb.Slice:
    """Times in seconds of the day; *granted* 0: never."""
    start = DAY + granted if granted else 0.0
    given = {"devices": BOTH, "state": "YIELDED", **more}
    return pb.Slice(job_id=job, group="g", requested=DAY + asked, start=start, end=DAY + ended, **given)


def report(*slices: pb.Slice) -> Any:
    """What sinterleave prints of *slices*."""
    fields = parse_format(",".join(column.name for column in COLUMNS), by_name(COLUMNS))
    return json.loads(render.as_json("slices", fields, [of_slice(item, DAY) for item in slices]))


SWITCHED = (
    turn("17", 1, 1, 101),
    turn("18", 21, 111, 196, snapshot_s=10),
    turn("17", 131, 211, 296, snapshot_s=10, restore_s=5),
    turn("18", 256, 311, 396, snapshot_s=10, restore_s=5),
)


def test_own_turns_replayed_come_to_their_own_times() -> None:
    history = World(jobs_in(report(*SWITCHED)), Rules(policy="fifo")).run()

    assert [(t.job, t.granted + 1, t.yielded + 1) for t in history.turns] == [
        ("17", 1, 101),
        ("18", 111, 196),
        ("17", 211, 296),
        ("18", 311, 396),
    ]


def test_slices_may_come_in_any_order_and_so_may_their_devices() -> None:
    mixed = [
        *SWITCHED[:2],
        turn("17", 131, 211, 296, snapshot_s=10, restore_s=5, devices=BOTH[::-1]),
        SWITCHED[3],
    ]

    runs = [World(jobs_in(report(*rows)), Rules(policy="fifo")).run() for rows in (SWITCHED, mixed[::-1])]

    assert runs[0].turns == runs[1].turns


def test_pools_are_the_devices_that_the_turns_were_on() -> None:
    [job, *_] = jobs_in(report(*SWITCHED))

    [place] = job.pools.values()
    assert (place.nodes, place.devices) == (("n1", "n2"), (0,))


def test_jobs_whose_devices_only_partly_meet_still_wait_for_each_other() -> None:
    one = turn("17", 1, 1, 50, devices=("n1/0", "n1/1"))
    other = turn("18", 2, 3, 60, devices=("n1/1",))

    history = World(jobs_in(report(one, other)), Rules()).run()

    assert [(t.job, t.granted) for t in history.turns] == [("17", 0), ("18", 49)]


def test_turns_that_last_and_waits_that_were_given_up_are_left_out() -> None:
    lasting = pb.Slice(job_id="19", devices=BOTH, requested=DAY, start=DAY + 1, state="RUNNING")
    in_vain = turn("20", 1, 0, 9, state="CANCELLED")

    assert {job.name for job in jobs_in(report(*SWITCHED, lasting, in_vain))} == {"17", "18"}
    assert jobs_in(report(lasting, in_vain)) == []


def test_a_cost_that_is_given_stands_for_what_was_measured() -> None:
    history = World(jobs_in(report(*SWITCHED), cost=Cost()), Rules(policy="fifo")).run()

    assert [t.granted for t in history.turns] == [0, 100, 185, 270]


@pytest.mark.parametrize(
    "wrong", [{"Devices": []}, {"Devices": ["n1"]}, {"JobID": 17}, {"Requested": "noon"}]
)
def test_a_slice_that_cannot_be_read_is_refused_with_the_call_that_makes_one(wrong: dict[str, Any]) -> None:
    [row] = report(SWITCHED[0])["slices"]

    with pytest.raises(BadArgument, match="sinterleave --json"):
        jobs_in({"slices": [{**row, **wrong}]})


@pytest.mark.parametrize("field", ["JobID", "Devices", "Requested", "SnapshotTime"])
def test_a_report_without_a_field_is_refused_with_its_name(field: str) -> None:
    [row] = report(SWITCHED[0])["slices"]
    del row[field]

    with pytest.raises(BadArgument, match=field):
        jobs_in({"slices": [row]})
