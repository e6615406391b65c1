"""What `sinterleave` prints: slices, sums, columns and formats."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from google.protobuf import json_format

from slurm_interleave.client.cli import report
from slurm_interleave.client.cli.columns import COLUMNS
from slurm_interleave.client.cli.rows import Row, of_slice
from slurm_interleave.client.cli.sinterleave import main
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from tests.cli.conftest import Call
from tests.cli.server import GivenOrchestrator
from tests.cli.turns import two_jobs


def test_each_slice_is_a_line_and_all_pages_are_read(call: Call, orchestrator: GivenOrchestrator) -> None:
    outcome = call(main, "-j", "17,18", "-P", "-o", "JobID,Phase,State")

    assert outcome.status == 0
    assert outcome.lines[0] == "JobID|Phase|State"
    assert outcome.lines[1:] == [f"{item.job_id}|{item.phase}|YIELDED" for item in orchestrator.slices]


@pytest.mark.parametrize(
    "form", [["-P"], ["-p"], ["--csv"], ["-o", "JobID%8,Phase%8,Start%20,Held%12,Partner%-9"]]
)
def test_a_long_report_is_written_as_it_comes(
    call: Call, orchestrator: GivenOrchestrator, monkeypatch: pytest.MonkeyPatch, form: list[str]
) -> None:
    orchestrator.slices *= 20
    monkeypatch.setattr(report, "_AT_ONCE", 10)
    kept, most = 0, 0

    def made(item: pb.Slice, now: float) -> Row:
        nonlocal kept, most
        kept += 1
        most = max(most, kept)
        return of_slice(item, now)

    def written(text: str) -> None:
        nonlocal kept
        kept -= len(text.splitlines())
        print(text)

    monkeypatch.setattr(report, "of_slice", made)
    monkeypatch.setattr(click, "echo", written)
    outcome = call(main, "-j", "17,18", "-n", *form)

    assert len(outcome.lines) == len(orchestrator.slices) > 5 * 10
    assert 0 < most <= 10


def test_the_table_has_headings_and_can_go_without(call: Call, orchestrator: GivenOrchestrator) -> None:
    with_headings = call(main, "-j", "17")
    without = call(main, "-j", "17", "-n")

    assert with_headings.lines[0].split()[:3] == ["JobID", "Group", "User"]
    assert set(with_headings.lines[1]) == {"-", " "}
    assert with_headings.lines[2:] == without.lines


def test_one_line_a_job_sums_its_slices(call: Call, orchestrator: GivenOrchestrator) -> None:
    outcome = call(main, "-X", "-n", "-P", "-j", "17,18", "-o", "JobID,Switches,Turns,Held")

    switches = [sum(s.switched for s in orchestrator.slices if s.job_id == job) for job in ("17", "18")]
    assert outcome.lines == [f"17|{switches[0]}|4|4.800", f"18|{switches[1]}|4|4.800"]


def test_a_state_with_one_line_a_job_is_the_jobs_state(call: Call, orchestrator: GivenOrchestrator) -> None:
    orchestrator.slices[-1].state = "RUNNING"
    orchestrator.slices[-1].end = 0

    outcome = call(main, "-X", "-n", "-P", "-j", "17,18", "-s", "running", "-o", "JobID,Turns")

    assert outcome.lines == [f"{orchestrator.slices[-1].job_id}|4"]
    assert not orchestrator.requests[0].states


def test_json_has_every_field_unless_some_are_named(call: Call, orchestrator: GivenOrchestrator) -> None:
    everything = json.loads(call(main, "-j", "17", "--json").out)["slices"]
    named = json.loads(call(main, "-j", "17", "--json", "-o", "jobid,waited").out)["slices"]

    assert list(everything[0]) == [column.name for column in COLUMNS]
    assert list(named[0]) == ["JobID", "Waited"]
    assert len(everything) == len(orchestrator.slices)


def test_long_has_every_field_and_all_users_are_all_that_may_be_seen(
    call: Call, orchestrator: GivenOrchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SINTERLEAVE_FORMAT", "JobID")

    long = call(main, "-l", "-a", "-P", "-S", "2025-06-01")

    assert long.lines[0].split("|") == [column.name for column in COLUMNS]
    assert len(long.lines) == 1 + len(two_jobs()[0])
    assert not orchestrator.requests[0].users


def test_the_format_of_the_environment_yields_to_the_flag(
    call: Call, orchestrator: GivenOrchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SINTERLEAVE_FORMAT", "Phase,State")

    assert call(main, "-P").lines[0] == "Phase|State"
    assert call(main, "-P", "-o", "User").lines[0] == "User"


def test_parsable_lines_end_in_the_delimiter_only_with_p(call: Call, orchestrator: GivenOrchestrator) -> None:
    assert call(main, "-p", "-o", "JobID,User").lines[0] == "JobID|User|"
    assert call(main, "-P", "-o", "JobID,User", "--delimiter", ",").lines[0] == "JobID,User"


def test_no_slices_make_headings_and_success(call: Call, orchestrator: GivenOrchestrator) -> None:
    orchestrator.slices.clear()

    outcome = call(main, "-o", "JobID,State")

    assert (outcome.status, outcome.lines) == (0, ["JobID State", "----- -----"])
    assert json.loads(call(main, "--json").out) == {"slices": []}


def test_every_column_is_listed_with_its_help(call: Call) -> None:
    lines = call(main, "--helpformat").lines

    assert [line.split()[0] for line in lines] == [column.name for column in COLUMNS]
    assert all(line.split(maxsplit=1)[1] == column.help for line, column in zip(lines, COLUMNS, strict=True))
    assert all(len(line) <= 80 for line in lines)


def test_every_option_has_help(call: Call) -> None:
    out = call(main, "--help").out

    letters = ("-j", "-u", "-A", "-r", "-N", "-G", "-S", "-E", "-s", "-o", "-X", "-P", "-p", "-n", "-e", "-V")
    for flag in (*letters, "--json", "--yaml", "--csv", "--units", "--delimiter", "--summary"):
        assert f"\n  {flag}" in out
    assert "--from-json" not in out
    assert "teatime" in out


def test_slices_can_come_from_a_file(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "slices.json"
    lines = [json_format.MessageToJson(item, indent=None) for item in two_jobs()[0]]
    file.write_text("\n".join(lines) + "\n")

    outcome = call(main, "--from-json", str(file), "-j", "18", "-n", "-P", "-o", "JobID,Phase")

    assert outcome.lines == ["18|rollout", "18|train"] * 2


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_the_version_is_told(call: Call, flag: str) -> None:
    assert call(main, flag).out.startswith("sinterleave, version ")
