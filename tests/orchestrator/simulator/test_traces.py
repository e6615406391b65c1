"""Traces become jobs that keep their own times, and what cannot be read is refused in words."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from slurm_interleave.client.cli.interleave import main
from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.orchestrator.core.rules import Rules
from slurm_interleave.orchestrator.simulator.program import Cost, alone
from slurm_interleave.orchestrator.simulator.records import batches, holds_of
from slurm_interleave.orchestrator.simulator.traces import jobs_in
from slurm_interleave.orchestrator.simulator.workloads import TRAINER
from slurm_interleave.orchestrator.simulator.world import World


def hold(job: str, asked: float, granted: float, yielded: float, **more: Any) -> dict[str, Any]:
    times = {"acquired_s": granted, "waited_s": granted - asked, "yielded_s": yielded}
    return {"job": job, "pool": "p", **times, "snapshot_s": 0.0, "restore_s": 0.0, **more}


def record(*holds: dict[str, Any], mode: str = "sync") -> dict[str, Any]:
    return {"meta": {"mode": mode}, "timesliced": {"holds": list(holds)}}


SLICE = {
    "JobID": "1", "Requested": 0.0, "Start": 0.0, "End": 9.0, "RestoreTime": 0.0, "SnapshotTime": 0.0,
    "Devices": ["n/0"],
}  # fmt: skip
SWITCHED = record(
    hold("A", 0, 0, 100, snapshot_s=10),
    hold("B", 20, 115, 200, snapshot_s=10),
    hold("A", 130, 215, 300, snapshot_s=10, restore_s=5),
    hold("B", 260, 315, 400, restore_s=5),
)


def test_a_record_replayed_with_its_own_costs_comes_to_its_own_times() -> None:
    [*turns] = World(jobs_in(SWITCHED), Rules()).run().turns

    assert [(t.job, t.granted, t.yielded) for t in turns] == [
        ("A", 0, 100),
        ("B", 110, 195),  # nothing to restore: the record waited 5 s more
        ("A", 210, 295),
        ("B", 310, 395),
    ]


def test_each_move_costs_again_what_it_did() -> None:
    trace = record(
        hold("A", 0, 0, 100, snapshot_s=10),
        hold("B", 20, 110, 200, snapshot_s=20),
        hold("A", 130, 225, 300, snapshot_s=30, restore_s=5),
        hold("B", 260, 337, 400, snapshot_s=40, restore_s=7),
        hold("A", 350, 449, 500, snapshot_s=50, restore_s=9),
        hold("B", 460, 561, 600, restore_s=11),
    )

    [*turns] = World(jobs_in(trace), Rules()).run().turns

    assert [(t.asked, t.granted, t.yielded) for t in turns] == [
        (row["acquired_s"] - row["waited_s"], row["acquired_s"], row["yielded_s"])
        for row in trace["timesliced"]["holds"]
    ]


def test_what_found_its_context_in_place_costs_as_much_as_others_where_it_does_not_any_more() -> None:
    # Why B waited from 50 to 150 is not in the record; without that it comes between two turns of A.
    trace = record(
        hold("A", 0, 0, 10),
        hold("B", 50, 150, 160),
        hold("A", 100, 100, 110),
        hold("A", 200, 206, 216, restore_s=6),
    )

    [*turns] = World(jobs_in(trace), Rules()).run().turns

    assert [(t.job, t.granted) for t in turns] == [("A", 0), ("B", 50), ("A", 106), ("A", 206)]


def test_a_yield_that_lasted_for_the_snapshot_is_told_from_one_that_did_not() -> None:
    lasting = record(hold("A", 0, 0, 100, snapshot_s=10), hold("B", 20, 101, 200))

    assert [h.yielded for h in holds_of(SWITCHED)] == [100, 200, 300, 400]
    assert [(h.yielded, h.resumed) for h in holds_of(lasting)] == [(90, 100), (200, 200)]


def test_only_another_job_on_the_same_devices_tells_that_a_yield_lasted() -> None:
    again = record(hold("A", 0, 0, 100, snapshot_s=10), hold("A", 101, 101, 200))
    elsewhere = record(hold("A", 0, 0, 100, snapshot_s=10), hold("B", 20, 101, 200, pool="q"))

    for trace in (again, elsewhere):
        assert [h.yielded for h in holds_of(trace)] == [100, 200]


def test_waits_that_do_not_count_restores_are_told_from_those_that_do() -> None:
    apart = record(hold("A", 0, 0, 10), hold("A", 50, 50, 60, restore_s=7))

    assert [h.asked for h in holds_of(apart)] == [0, 43]
    assert [h.asked for h in holds_of(SWITCHED)] == [0, 20, 130, 260]


def test_a_batch_that_nobody_waited_for_came_when_it_was_due() -> None:
    own = [hold("A", at, at, at + 50) for at in (0, 100, 200, 251, 302, 500)]
    late = [
        hold("A", *times)
        for times in ((0, 0, 9), (100, 100, 109), (200, 200, 450), (451, 451, 460), (461, 461, 470))
    ]

    # 251 and 302 were asked for at once: due every 100 s, at 300 and 400, but not after they were asked for.
    assert batches(holds_of(record(*own))) == [0, 100, 200, 251, 302, 500]
    assert batches(holds_of(record(*late))) == [0, 100, 200, 300, 400]


@pytest.mark.parametrize(("mode", "asked"), [("async", [0, 100, 200]), ("sync", [0, 100, 265])])
def test_the_batches_of_an_asynchronous_job_do_not_wait_for_its_turns(mode: str, asked: list[float]) -> None:
    a = [hold("A", at, at, at + 10) for at in (0, 100, 200)]

    turns = World(jobs_in(record(*a, hold("B", 95, 120, 190), mode=mode)), Rules()).run().turns

    # B, which has 70 s from 95 on, lets A's second turn last until 175.
    assert [(t.job, t.granted) for t in turns[1:3]] == [("B", 95), ("A", 165)]
    assert [t.asked for t in turns if t.job == "A"] == asked


def test_an_asynchronous_job_with_a_batch_in_stock_asks_as_soon_as_it_did() -> None:
    trace = record(*(hold("A", at, at, at + 10) for at in (0, 12, 24)), mode="async")

    assert [t.granted for t in World(jobs_in(trace), Rules()).run().turns] == [0, 12, 24]


def test_an_asynchronous_job_of_several_pools_is_refused() -> None:
    with pytest.raises(BadArgument, match="job A has several pools"):
        jobs_in(record(hold("A", 0, 0, 10), hold("A", 20, 20, 30, pool="q"), mode="async"))


@pytest.mark.parametrize(
    ("trace", "why"),
    [
        ([], "one JSON object"),
        ({"x": 1}, "recorded"),
        ({"timesliced": {}}, "not a record"),
        ({"timesliced": {"holds": []}}, "no holds"),
        ({"timesliced": {"holds": [{"job": "A", "pool": "p"}]}}, "acquired_s"),
        ({"jobs": 3}, "must be a list"),
        ({"jobs": [3]}, "JSON object"),
        ({"jobs": [{"name": "a"}]}, "rollout_s"),
        ({"jobs": [{"name": "a", "rollout_s": 1, "train_s": "x"}]}, "from 0 on"),
        ({"jobs": [{"name": "a", "rollout_s": 1, "train_s": 1, "steps": 1.5}]}, "from 0 on"),
        ({"jobs": [{"name": "a", "rollout_s": 1, "train_s": 1, "stesp": 1}]}, "stesp"),
        ({"jobs": [{"name": "a", "rollout_s": 1, "train_s": 1}] * 2}, "two jobs"),
        *(
            ({"jobs": [{"name": "a", "rollout_s": 1, "train_s": 1, name: value}]}, name)
            for name in ("rollout_s", "train_s", "sync_s", "start_s", "snapshot_s", "restore_s", "spread")
            for value in (math.nan, math.inf, -1, 10**400, True, "1", None)
        ),
        *(
            ({"jobs": [{"name": "a", "rollout_s": 1, "train_s": 1, name: value}]}, name)
            for name in ("steps", "staleness", "devices", "count")
            for value in (math.nan, math.inf, -1, 10**400, True, 1.0)
        ),
        ({"jobs": [{"name": "a", "rollout_s": 1, "train_s": 1, "devices": 0}]}, "devices"),
        *(
            ({"jobs": [{"name": "a", "rollout_s": 1, "train_s": 1, name: value}]}, name)
            for name in ("two_pools", "colocated", "group")
            for value in (1, None, ["no"])
        ),
        ({"jobs": [{"name": "a", "rollout_s": 1, "train_s": 1, "two_pools": "no"}]}, "true or false"),
        (record(hold("A", 0, math.nan, 10)), "numbers of seconds"),
        (record(hold("A", 0, 0, 10, snapshot_s=math.inf)), "numbers of seconds"),
        ({"slices": [{**SLICE, "End": math.nan}]}, "cannot be read"),
    ],
)
def test_what_is_no_trace_is_refused_with_what_is_wrong(trace: Any, why: str) -> None:
    with pytest.raises(BadArgument, match=why):
        jobs_in(trace)


def test_a_declared_job_is_as_it_says() -> None:
    said = {"start_s": 7, "snapshot_s": 4, "restore_s": 2, "devices": 2, "spread": 0}
    entry = {"name": "a", "rollout_s": 30, "train_s": 20, "sync_s": 1, "steps": 3, **said}

    [job] = jobs_in({"jobs": [entry]})

    assert (job.start_s, job.cost, job.pools[TRAINER].devices) == (7, Cost(4, 2), (0, 1))
    assert alone(job).seconds == 3 * 51
    assert [job.cost for job in jobs_in({"jobs": [entry]}, cost=Cost())] == [Cost()]
    [varied] = jobs_in({"jobs": [{**entry, "spread": 0.2}]})
    assert alone(varied).seconds != 3 * 51


def test_so_many_alike_are_declared_as_count_says() -> None:
    entry = {"name": "a", "rollout_s": 30, "train_s": 20, "count": 3}

    assert [job.name for job in jobs_in({"jobs": [entry]})] == ["a-0", "a-1", "a-2"]
    assert jobs_in({"jobs": [{**entry, "count": 0}]}) == []


def test_declared_jobs_of_one_group_share_devices() -> None:
    jobs = jobs_in(
        {
            "jobs": [
                {"name": "a", "rollout_s": 30, "train_s": 20, "count": 2, "steps": 3},
                {"name": "b", "rollout_s": 30, "train_s": 20, "group": "other"},
            ]
        }
    )

    first, second, other = (job.pools[TRAINER] for job in jobs)
    assert first == second != other


def test_simulate_prints_the_policy_beside_fifo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(SWITCHED))

    assert main(["simulate", str(file), "--policy", "priority", "--json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert found.keys() == {"priority", "fifo"}
    assert found["fifo"]["makespan_s"] == 395


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--backend-cost", "1"], "two numbers"),
        (["--backend-cost", "nan,1"], "0 or more"),
        (["--policy", "best"], "known are fifo, "),
        (["--sacct"], "--phases"),
        (["--devices", "1", "--jobs", "0"], "range"),
    ],
)
def test_simulate_refuses_bad_options_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], why: str
) -> None:
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(SWITCHED))

    assert main(["simulate", str(file), *arguments]) != 0

    err = capsys.readouterr().err
    assert why in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1]", "\xff"]
    + [
        '{"jobs": [{"name": "a", "rollout_s": ' + number + ', "train_s": 1}]}'
        for number in ("NaN", "Infinity", "-Infinity", "1e999", "-1")
    ],
)
def test_simulate_of_a_file_that_is_no_trace_ends_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    file = tmp_path / "trace.json"
    file.write_bytes(text.encode("latin-1"))

    assert main(["simulate", str(file)]) == 1

    assert capsys.readouterr().err.count("\n") == 1
