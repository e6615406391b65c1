"""What the timeline shows, before and after it is drawn."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.client.timeline import Work, chart, read_work
from slurm_interleave.client.timeline.spans import Kind, Span, job_lane, picture
from slurm_interleave.client.timeline.work import busy_s, place
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from tests.cli.turns import BEGAN, HANDOVER_S, RESTORE_S, two_jobs

# A bar over another: only the states of a context lie under the turns.
UNDER = frozenset({Kind.WARM, Kind.SAVED})


def of(spans: tuple[Span, ...], lane: str, kind: Kind) -> list[tuple[float, float]]:
    return sorted(
        (round(s.start - BEGAN, 6), round(s.end - BEGAN, 6))
        for s in spans
        if (s.lane, s.kind) == (lane, kind)
    )


def test_a_handover_is_a_snapshot_then_ours_then_a_restore() -> None:
    slices = [
        pb.Slice(job_id="1", devices=["n1/0"], requested=BEGAN, start=BEGAN, end=BEGAN + 2),
        pb.Slice(
            job_id="2",
            devices=["n1/0"],
            requested=BEGAN + 1,
            start=BEGAN + 5,
            end=BEGAN + 8,
            switched=True,
            switch_s=2.0,
            snapshot_s=0.5,
            restore_s=1.0,
        ),
    ]

    spans = picture(slices).spans

    for lane in ("n1/0", job_lane("2")):
        assert of(spans, lane, Kind.SNAPSHOT) == [(3, 3.5)]
        assert of(spans, lane, Kind.SWITCH) == [(3.5, 4)]
        assert of(spans, lane, Kind.RESTORE) == [(4, 5)]
    assert of(spans, "n1/0", Kind.HELD) == [(0, 2), (5, 8)]
    assert of(spans, "n1/0", Kind.WARM) == [(2, 3)]
    assert of(spans, job_lane("1"), Kind.WARM) == [(2, 3)]
    assert of(spans, job_lane("2"), Kind.WAITING) == [(1, 3)]


def test_a_job_is_saved_from_the_others_snapshot_to_its_own_restore() -> None:
    slices, _ = two_jobs()
    first, second = slices[0], slices[1]
    again = next(item for item in slices[1:] if item.job_id == first.job_id)

    saved = of(picture(slices).spans, job_lane(first.job_id), Kind.SAVED)[0]

    gone = second.start - RESTORE_S * (second.restore_s > 0) - HANDOVER_S
    assert saved == pytest.approx((gone - BEGAN, again.start - RESTORE_S - BEGAN))


def test_a_job_that_comes_back_to_its_own_warm_devices_was_warm_in_between() -> None:
    slices = [
        pb.Slice(job_id="1", devices=["n1/0"], requested=BEGAN, start=BEGAN, end=BEGAN + 2),
        pb.Slice(job_id="1", devices=["n1/0"], requested=BEGAN + 3, start=BEGAN + 3, end=BEGAN + 4),
    ]

    spans = picture(slices).spans

    assert of(spans, "n1/0", Kind.WARM) == [(2, 3)]
    assert not of(spans, job_lane("1"), Kind.SAVED)


class Looked:
    """A slice that counts how often it is looked at."""

    looks = 0

    def __init__(self, item: pb.Slice) -> None:
        self._item = item

    def __getattr__(self, name: str) -> Any:
        Looked.looks += 1
        return getattr(self._item, name)


@pytest.mark.parametrize("devices", [lambda _: 1, lambda jobs: jobs // 2, lambda jobs: jobs])
def test_ten_times_the_turns_of_ten_times_the_jobs_are_ten_times_the_work(
    devices: Callable[[int], int],
) -> None:
    def looks(jobs: int) -> int:
        slices = [
            pb.Slice(
                job_id=str(i % jobs),
                devices=[f"n/{i % jobs % devices(jobs)}"],
                requested=BEGAN + i,
                start=BEGAN + i + 0.1,
                end=BEGAN + i + 0.9,
                snapshot_s=0.1,
            )
            for i in range(5 * jobs)
        ]
        Looked.looks = 0
        chart(cast("list[pb.Slice]", [Looked(item) for item in slices]))
        return Looked.looks

    few = looks(10)
    assert 0 < looks(100) < 15 * few


def test_turns_that_last_or_wait_are_drawn_up_to_now() -> None:
    slices = [
        pb.Slice(job_id="1", devices=["n1/0"], requested=BEGAN, start=BEGAN + 1, state="RUNNING"),
        pb.Slice(job_id="2", requested=BEGAN + 2, state="WAITING"),
    ]

    spans = picture(slices, now=BEGAN + 10).spans

    assert of(spans, "n1/0", Kind.HELD) == [(1, 10)]
    assert of(spans, job_lane("2"), Kind.WAITING) == [(2, 10)]


def test_devices_stand_in_the_order_of_their_numbers() -> None:
    item = pb.Slice(
        job_id="1", devices=["n1/10", "n1/9", "n0/11"], requested=BEGAN, start=BEGAN, end=BEGAN + 1
    )

    assert picture([item]).devices == ("n0/11", "n1/9", "n1/10")


@given(
    st.lists(
        st.tuples(
            st.sampled_from("ABC"),
            st.floats(0, 5),
            st.floats(0, 5),
            st.floats(0, 1),
            st.floats(0, 1),
            st.floats(0, 1),
        ),
        max_size=12,
    )
)
def test_no_lane_shows_two_things_at_one_time(
    turns: list[tuple[str, float, float, float, float, float]],
) -> None:
    """Whatever the history of one device, its lane and those of the jobs are never drawn twice over."""
    free, slices = BEGAN, []
    last_end: dict[str, float] = {}
    resident = ""
    for job, wait, held, snapshot, restore, ours in turns:
        switched = resident not in ("", job)
        switch = (snapshot + restore + ours) if switched else 0.0
        requested = max(last_end.get(job, BEGAN), free - wait)
        start = max(free, requested) + switch
        free, resident = start + held, job
        last_end[job] = free
        slices.append(
            pb.Slice(
                job_id=job,
                devices=["n1/0"],
                requested=requested,
                start=start,
                end=free,
                switched=switched,
                switch_s=switch,
                snapshot_s=snapshot if switched else 0,
                restore_s=restore if switched else 0,
            )
        )

    lanes = defaultdict(list)
    for span in picture(slices).spans:
        if span.kind not in UNDER:
            lanes[span.lane].append(span)

    for spans in lanes.values():
        for before, after in pairwise(sorted(spans, key=lambda s: s.start)):
            assert before.end <= after.start + 1e-5


def bars(slices: list[pb.Slice], work: Sequence[Work] = ()) -> list[dict[str, Any]]:
    return list(chart(slices, work)["layer"][0]["data"]["values"])


def test_each_phase_of_each_job_has_its_own_colour() -> None:
    slices, _ = two_jobs()

    scale = chart(slices)["layer"][0]["encoding"]["color"]["scale"]

    looks = dict(zip(scale["domain"], scale["range"], strict=True))
    assert len({looks[f"{job} {phase}"] for job in (17, 18) for phase in ("rollout", "train")}) == 4
    assert {bar["look"] for bar in bars(slices)} <= set(looks)


def test_times_are_seconds_since_the_first_acquire_and_to_scale() -> None:
    slices, work = two_jobs()

    shown = bars(slices, work)

    assert min(bar["from"] for bar in shown) == 0
    assert max(bar["to"] for bar in shown) == pytest.approx(slices[-1].end - BEGAN)
    held = [bar for bar in shown if bar["look"] == "18 train" and bar["lane"] == "job 18"]
    ours = [item for item in slices if (item.job_id, item.phase) == ("18", "train")]
    assert [(bar["from"], bar["seconds"]) for bar in held] == [
        (pytest.approx(item.start - BEGAN), pytest.approx(item.end - item.start)) for item in ours
    ]


def test_what_is_warm_has_one_entry_in_the_legend_and_a_colour_for_each_job() -> None:
    slices = [
        pb.Slice(
            job_id=job, devices=[f"n1/{job}"], requested=BEGAN + at, start=BEGAN + at, end=BEGAN + at + 2
        )
        for job in "12"
        for at in (0, 3)
    ]

    colour = chart(slices)["layer"][0]["encoding"]["color"]

    warm = [look for look in colour["scale"]["domain"] if look.startswith("yielded")]
    assert len(warm) == 2
    assert [look for look in colour["legend"]["values"] if look.startswith("yielded")] == warm[:1]


def test_work_of_a_simulated_device_is_put_on_its_jobs_node() -> None:
    item = Work(BEGAN, BEGAN + 1, "17", "rollout", "0")

    assert place(item, ["n1/0", "n2/0"], ["n2/0"]) == "n2/0"
    assert place(item, ["n1/0", "n1/1"], []) == "n1/0"
    assert place(item, ["n1/0", "n2/0"], []) == "0"
    assert place(Work(0, 1, "", "", "SIM-n1-1"), ["n1/0", "n1/1"], []) == "n1/1"
    assert place(Work(0, 1, "", "", "n2/0"), ["n1/0", "n2/0"], ["n1/0"]) == "n2/0"


def test_busy_time_counts_what_overlaps_once() -> None:
    work = [Work(start, end, "", "", "0") for start, end in ((0, 2), (1, 3), (1.5, 1.7), (10, 11))]

    assert busy_s(work) == pytest.approx(4)
    assert busy_s([]) == 0


def test_a_last_line_that_is_still_being_written_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "work.jsonl"
    line = json.dumps({"start": 1.0, "end": 2.0, "job": "17", "name": "train", "device": 1})
    file.write_text(f"{line}\n{line[:20]}")

    assert read_work(file) == [Work(1.0, 2.0, "17", "train", "1")]


@pytest.mark.parametrize("line", ["nonsense", "[]", '{"start": 1}', '{"start": "x", "end": 2}'])
def test_a_line_that_is_no_work_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "work.jsonl"
    file.write_text(f"\n{line}\n")

    with pytest.raises(BadArgument, match=r"work\.jsonl: line 2 is not an interval of work"):
        read_work(file)
