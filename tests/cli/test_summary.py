"""`sinterleave -X` and `--summary`: sums, and what sharing gained by cases that were counted by hand."""

from __future__ import annotations

import csv
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf import json_format

from slurm_interleave.client.cli import summary
from slurm_interleave.client.cli.columns import COLUMNS
from slurm_interleave.client.cli.job_lists import parse_jobs
from slurm_interleave.client.cli.sinterleave import main
from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from tests.cli.conftest import Call
from tests.cli.server import GivenOrchestrator, served

BEGAN = 1_750_000_000.0
GIB = 2**30


@pytest.fixture
def orchestrator(monkeypatch: pytest.MonkeyPatch) -> Iterator[GivenOrchestrator]:
    given = GivenOrchestrator()
    given.days = [
        day("17", "good", "2025-06-14", held=3600, waited=0, exclusive=4 * 3600, occupied=2 * 3600),
        day("17", "good", "2025-06-15", held=3600, waited=60, exclusive=4 * 3600, occupied=2 * 3600),
        day("18", "bad", "2025-06-15", held=1800, waited=2400, exclusive=3600, occupied=5400),
    ]
    with served(given) as address:
        monkeypatch.setenv("INTERLEAVE_CLIENT_ORCHESTRATOR", address)
        yield given


def day(job: str, group: str, date: str, *, held: float, waited: float, **device_s: float) -> pb.DaySum:
    """Sums of two turns on 2 devices."""
    of = pb.Slice(
        job_id=job,
        group=group,
        user=f"user{job}",
        account="lab",
        partition="ilv",
        phase="train",
        state="YIELDED",
        devices=["n1/0", "n1/1"],
        nodes="n1",
        partners=["99"],
        requested=BEGAN,
        start=BEGAN + 10,
        end=BEGAN + 10_000,
        switch_s=5,
        snapshot_s=2,
        restore_s=2.5,
        switch_bytes=3 * GIB,
    )
    return pb.DaySum(
        day=date,
        slice=of,
        turns=2,
        switches=1,
        held_s=held,
        waited_s=waited,
        max_wait_s=waited * 0.75,
        overhead_s=0.5,
        held_device_s=2 * held,
        waited_device_s=2 * waited,
        exclusive_device_s=device_s["exclusive"],
        occupied_device_s=device_s["occupied"],
        foretold=2 if waited else 0,
        expected_s=waited * 0.5,
        missed_s=waited * 0.5,
    )


def test_a_summary_shows_waiting_beside_the_savings_and_says_where_sharing_lost(
    call: Call, orchestrator: GivenOrchestrator
) -> None:
    fields = "group,jobs,turns,dutybefore,dutyafter,savedhours,result,waitedhours,slowdown"

    outcome = call(main, "--summary", "-S", "2025-06-01", "-P", "-o", fields)

    assert outcome.lines == [
        "Group|Jobs|Turns|DutyBefore|DutyAfter|SavedHours|Result|WaitedHours|Slowdown",
        # Held for 1 h of each of the 2 h that it would have run alone, and for half of its time it paid half.
        "bad|1|2|100.0%|66.7%|-0.500000|LOST|0.666667|133.3%",
        "good|1|4|50.0%|100.0%|4.000000|saved|0.016667|0.4%",
        "(all)|2|6|55.6%|90.9%|3.500000|saved|0.683333|15.2%",
    ]
    assert orchestrator.requests[0].summed


def test_a_summary_says_how_far_the_waits_were_from_what_was_told(
    call: Call, orchestrator: GivenOrchestrator
) -> None:
    outcome = call(main, "--summary=day", "-P", "-n", "-o", "Day,Foretold,Expected,WaitError")

    assert outcome.lines == [
        "2025-06-14|0||",
        "2025-06-15|4|307.500|307.500",
        "(all)|4|307.500|307.500",
    ]


@pytest.mark.parametrize(
    ("key", "names"),
    [
        ("group", ["bad", "good", "(all)"]),
        ("user", ["user17", "user18", "(all)"]),
        ("account", ["lab"]),
        ("partition", ["ilv"]),
        ("day", ["2025-06-14", "2025-06-15", "(all)"]),
    ],
)
def test_a_summary_has_a_line_for_each(
    call: Call, orchestrator: GivenOrchestrator, key: str, names: list[str]
) -> None:
    outcome = call(main, f"--summary={key}", "-S", "2025-06-01", "-P", "-n")

    assert [line.split("|")[0] for line in outcome.lines] == names


def test_the_default_summary_has_waiting_switches_and_result(
    call: Call, orchestrator: GivenOrchestrator
) -> None:
    headings = call(main, "--summary").lines[0].split()

    assert {"SavedHours", "Result", "WaitedHours", "SwitchHours", "Slowdown"} < set(headings)


def test_turns_that_last_are_not_in_a_summary(call: Call, orchestrator: GivenOrchestrator) -> None:
    orchestrator.days.clear()
    orchestrator.slices = [pb.Slice(job_id="17", group="g", state="RUNNING", requested=BEGAN, start=BEGAN)]

    outcome = call(main, "--summary", "-P", "-o", "Group,Turns")

    assert (outcome.status, outcome.lines) == (0, ["Group|Turns"])


def test_one_line_a_job_sums_its_days(call: Call, orchestrator: GivenOrchestrator) -> None:
    fields = (
        "JobID,Turns,Held,AvgWait,MaxWait,DutyCycle,DeviceHours,SharedHours,SavedHours,Partner,SwitchBytes"
    )

    outcome = call(main, "-X", "-n", "-P", "-j", "17,18", "-o", fields)

    assert outcome.lines == [
        "17|4|7200.000|15.000|45.000|100.0%|4.000000|4.033333|4.000000|99|6442450944",
        "18|2|1800.000|1200.000|1800.000|66.7%|1.000000|0.833333|-0.500000|99|3221225472",
    ]


def test_bytes_can_be_shown_in_one_unit(call: Call, orchestrator: GivenOrchestrator) -> None:
    options = ("-X", "-n", "-j", "17", "--units", "M", "-o", "SwitchBytes")

    assert call(main, *options).lines[0].strip() == "6144.00M"
    assert call(main, *options, "-P").lines[0] == "6144.00M"


def test_yaml_and_json_say_the_same(call: Call, orchestrator: GivenOrchestrator) -> None:
    yaml = pytest.importorskip("yaml")

    as_json = json.loads(call(main, "-X", "--json").out)
    as_yaml = yaml.safe_load(call(main, "-X", "--yaml").out)

    assert as_yaml == as_json
    assert list(as_json["slices"][0]) == [column.name for column in COLUMNS]
    orchestrator.days.clear()
    assert yaml.safe_load(call(main, "--yaml").out) == {"slices": []}


def test_csv_quotes_what_has_commas(call: Call, orchestrator: GivenOrchestrator) -> None:
    outcome = call(main, "-X", "--csv", "-j", "17", "-o", "JobID,Devices,State")

    assert list(csv.reader(outcome.lines))[:2] == [
        ["JobID", "Devices", "State"],
        ["17", "n1/0,n1/1", "YIELDED"],
    ]
    assert call(main, "-X", "--csv", "-n", "-o", "JobID").lines == ["17", "18"]


def test_the_fields_of_a_summary_are_listed_too(call: Call) -> None:
    lines = call(main, "--summary=day", "--helpformat").lines

    assert [line.split()[0] for line in lines] == [column.name for column in summary.columns("day")]


def test_slices_of_a_file_make_the_same_summary(call: Call, tmp_path: Path) -> None:
    """Two jobs by turns on one device, 60 s each, with 5 s of switch between: the switches are lost."""
    slices = [
        pb.Slice(
            job_id=str(17 + number % 2),
            group="g",
            devices=["n1/0"],
            state="YIELDED",
            requested=BEGAN + (number - 1) * 65,
            start=BEGAN + number * 65 + 5,
            end=BEGAN + number * 65 + 65,
            switched=True,
            switch_s=5,
            share=0.5,
        )
        for number in range(1, 5)
    ]
    file = tmp_path / "slices.json"
    file.write_text("".join(json_format.MessageToJson(one, indent=None) + "\n" for one in slices))

    outcome = call(
        main, "--from-json", str(file), "-S", "2025-06-01", "--summary", "-P", "-n", "-o", "SavedHours,Result"
    )

    # Apart: 4 x 60 s; together 4 x 130 s shared by two.
    assert outcome.lines == [f"{(240 - 260) / 3600:.6f}|LOST"]


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of Slurm's commands that know array 123 and the heterogeneous job 300."""
    scripts = {
        "squeue": "echo '123_2|125|N/A|N/A|'\necho '300|300|0|300|'\necho '301|301|1|300|'",
        "sacct": "echo '123_1|124'\necho '123_2|9999'",
    }
    for name, text in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def test_tasks_and_components_are_looked_up_in_slurm(slurm: Path) -> None:
    assert parse_jobs(["17,123_[1-2]", "300+1"]) == ("17", "124", "125", "301")


def test_a_task_that_slurm_does_not_know_is_named(slurm: Path) -> None:
    with pytest.raises(BadArgument, match="which job 123_7 is; name it by its own number"):
        parse_jobs(["123_[1,7]"])


def test_names_outside_slurm_are_not_looked_up() -> None:
    assert parse_jobs(["8-11,10"]) == ("8", "9", "10", "11")
    assert parse_jobs(["train_1,my-job+x,a_b"]) == ("train_1", "my-job+x", "a_b")
