"""Columns, rows and renderers, without an orchestrator."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_interleave.client.cli import render
from slurm_interleave.client.cli.columns import COLUMNS, DEFAULT_FORMAT
from slurm_interleave.client.cli.fields import HOURS, by_name, bytes_text, parse_format, seconds
from slurm_interleave.client.cli.rows import Row, of_slice, per_job
from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.client.core.states import SliceState
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from tests.cli.turns import BEGAN, Member, take_turns

NAMES = by_name(COLUMNS)
SLICE = pb.Slice(
    job_id="17",
    user="alice",
    group="demo",
    phase="rollout",
    nodes="n1,n2",
    devices=["n1/0", "n2/0"],
    state="YIELDED",
    requested=BEGAN,
    start=BEGAN + 2.5,
    end=BEGAN + 12.75,
    switched=True,
    switch_s=0.5,
    snapshot_s=0.3,
    restore_s=0.15,
    switch_bytes=3 * 2**30,
)
ROW = of_slice(SLICE, BEGAN + 100)


def table(chosen: str, rows: list[Row], limit: int | None = None) -> list[str]:
    return list(render.table(parse_format(chosen, NAMES), rows, limit=limit))


def values(chosen: str, rows: list[Row]) -> list[str]:
    return list(render.parsable(parse_format(chosen, NAMES), rows, heading=False))


def test_a_slice_is_measured_from_its_acquire_its_grant_and_its_end() -> None:
    chosen = "Waited,Held,SwitchIn,SnapshotTime,RestoreTime,Overhead,Switches,SwitchBytes,Elapsed"

    assert values(chosen, [ROW]) == ["2.500|10.250|0.500|0.300|0.150|0.050|1|3221225472|00:00:10"]


def test_a_turn_that_lasts_is_counted_up_to_now_and_has_no_end() -> None:
    running = pb.Slice(job_id="1", state="RUNNING", requested=BEGAN, start=BEGAN + 1)

    assert values("Waited,Held,End", [of_slice(running, BEGAN + 5)]) == ["1.000|4.000|Unknown"]


def test_a_turn_that_waits_has_waited_until_now_and_held_nothing() -> None:
    waiting = pb.Slice(job_id="1", state="WAITING", requested=BEGAN)

    assert values("Waited,Held,Start,Turns", [of_slice(waiting, BEGAN + 5)]) == ["5.000|0.000|Unknown|0"]


def test_a_turn_that_ended_before_its_grant_waited_until_its_end() -> None:
    ended = pb.Slice(job_id="1", state="JOB_ENDED", requested=BEGAN, end=BEGAN + 3)

    assert values("Waited,Held", [of_slice(ended, BEGAN + 5)]) == ["3.000|0.000"]


def test_the_row_of_a_job_sums_its_slices() -> None:
    slices, _ = take_turns([Member("17", "a", BEGAN), Member("18", "b", BEGAN + 0.4)], rounds=3)
    rows = [of_slice(item, BEGAN + 100) for item in slices]

    jobs = per_job(rows, BEGAN + 100)

    assert [job.job_id for job in jobs] == ["17", "18"]
    for job in jobs:
        own = [row for row in rows if row.job_id == job.job_id]
        assert job.switches == sum(row.switched for row in slices if row.job_id == job.job_id)
        assert job.waited_s == pytest.approx(sum(row.waited_s for row in own))
        assert job.held_s == pytest.approx(sum(row.held_s for row in own))
        assert job.overhead_s == pytest.approx(sum(row.overhead_s for row in own))
        assert job.turns == len(own)
        assert job.phase == "rollout,train"
        assert (job.start, job.end) == (own[0].start, own[-1].end)


def test_a_job_is_in_the_state_of_the_slice_that_is_under_way() -> None:
    ended = ROW._replace(state="YIELDED", requested=BEGAN + 50)

    for state in (SliceState.WAITING, SliceState.RUNNING):
        live = ROW._replace(state=state.value, requested=BEGAN, end=None)
        job = per_job([live, ended], BEGAN + 100)[0]
        assert (job.state, job.end) == (state.value, None)


def test_an_ended_job_is_in_the_state_of_its_last_slice() -> None:
    first = ROW._replace(state=SliceState.YIELDED.value)
    last = ROW._replace(state=SliceState.JOB_ENDED.value, requested=BEGAN + 20)

    assert per_job([last, first], BEGAN + 100)[0].state == "JOB_ENDED"


def test_a_column_is_as_wide_as_what_is_in_it() -> None:
    assert table("JobID,Phase,Devices,Held", [ROW]) == [
        "JobID Phase   Devices    Held",
        "----- ------- --------- -----",
        "   17 rollout n1/0,n2/0 10.25",
    ]


def test_a_width_cuts_with_a_plus_and_its_sign_aligns() -> None:
    assert table("Phase%5,JobID%-6,State%9", [ROW]) == [
        "Phase JobID      State",
        "----- ------ ---------",
        "roll+ 17       YIELDED",
    ]


def test_a_table_without_rows_has_its_headings() -> None:
    assert table("JobID,State", []) == ["JobID State", "----- -----"]


def test_on_a_narrow_terminal_the_widest_texts_are_cut_and_the_numbers_stay() -> None:
    row = ROW._replace(phase="a phase with a long name", devices=tuple(f"node{i}/0" for i in range(9)))

    lines = table("JobID,Phase,Devices,Waited,SwitchBytes", [row], limit=60)

    assert max(map(len, lines)) == 60
    assert lines[-1].startswith("   17 a phase with a ")
    assert lines[-1].endswith("+  2.500       3.00G")


def test_an_impossible_width_leaves_the_table_readable() -> None:
    line = table("JobID,Phase,Waited", [ROW], limit=3)[-1]

    assert line == "   17 rollo+  2.500"


def test_a_width_shortens_parsable_values_too() -> None:
    assert values("phase%4,jobid", [ROW]) == ["roll|17"]


def test_parsable_output_can_end_each_line_with_the_delimiter() -> None:
    fields = parse_format("JobID,State", NAMES)

    assert list(render.parsable(fields, [ROW], delimiter=";", trailing=True)) == [
        "JobID;State;",
        "17;YIELDED;",
    ]


def test_json_has_numbers_as_numbers_and_null_where_there_is_none() -> None:
    fields = parse_format("JobID,End,Waited,SwitchBytes,Devices", NAMES)
    text = render.as_json("slices", fields, [ROW._replace(end=None)])

    assert json.loads(text) == {
        "slices": [
            {"JobID": "17", "End": None, "Waited": 2.5, "SwitchBytes": 3 * 2**30, "Devices": ["n1/0", "n2/0"]}
        ]
    }


@given(phase=st.text(max_size=30), name=st.text(max_size=30))
def test_whatever_a_job_calls_itself_a_row_is_one_line(phase: str, name: str) -> None:
    row = ROW._replace(phase=phase, job_name=name)

    assert len("\n".join(table("JobID,JobName,Phase", [row])).splitlines()) == 3
    assert len(values("JobName,Phase", [row])[0].splitlines()) == 1
    assert json.loads(render.as_json("s", parse_format("Phase", NAMES), [row]))["s"][0]["Phase"] == phase


@given(
    rows=st.lists(
        st.builds(lambda text: ROW._replace(phase=text, group=text[::-1]), st.text("abc", max_size=40))
    ),
    limit=st.integers(60, 200),
)
def test_a_table_fits_the_terminal(rows: list[Row], limit: int) -> None:
    lines = table("JobID,Group,Phase,Waited,Held,State", rows, limit)

    assert all(len(line) <= limit for line in lines)
    assert all(len(line) == len(lines[1]) or line.strip() for line in lines)


@pytest.mark.parametrize("text", ["JobID,", "jobid , PHASE%-12", DEFAULT_FORMAT])
def test_names_of_fields_are_read_in_any_case(text: str) -> None:
    assert parse_format(text, NAMES)[0].column.name == "JobID"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("JobId,Wated", "no field 'Wated'; did you mean 'Waited'?"),
        ("zzz", "no field 'zzz'; --helpformat lists all"),
        ("JobID%", "'JobID%' cannot be read"),
        ("JobID%0", "NAME%WIDTH"),
        ("JobID%99999", "1 to 9999"),
        (",", "names no field"),
        ("", "names no field"),
    ],
)
def test_a_bad_format_is_answered_with_what_would_do(text: str, said: str) -> None:
    with pytest.raises(BadArgument, match=said.replace("?", r"\?")):
        parse_format(text, NAMES)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0.000"),
        (0.0042, "0.004"),
        (9.9996, "10.00"),
        (12.345, "12.35"),
        (123.44, "123.4"),
        (1234.4, "1234"),
    ],
)
def test_seconds_are_shown_with_four_digits(value: float, text: str) -> None:
    assert seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1023, "1023"), (1024, "1.00K"), (1536 * 2**20, "1.50G"), (2**70, "1048576.00P")],
)
def test_bytes_are_shown_as_sacct_shows_memory(value: int, text: str) -> None:
    assert bytes_text(value) == text


@pytest.mark.parametrize("value", [-0.0, -0.0001, 0.0001])
def test_next_to_no_hours_are_none_and_not_less(value: float) -> None:
    assert (HOURS.table(value), HOURS.parsable(value), str(HOURS.json(value))) == ("0.000", "0.000000", "0.0")
