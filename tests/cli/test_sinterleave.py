"""`sinterleave` as a user meets it: arguments in; text and exit status out."""

from __future__ import annotations

import json
import os
import pwd
import threading
import time
from collections.abc import Callable
from pathlib import Path

import click
import grpc
import pytest
from google.protobuf import json_format

from slurm_interleave.client.cli import link, report
from slurm_interleave.client.cli.columns import COLUMNS
from slurm_interleave.client.cli.rows import Row, of_slice
from slurm_interleave.client.cli.sinterleave import main
from slurm_interleave.client.cli.times import midnight
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from tests.cli.conftest import Outcome
from tests.cli.server import GivenOrchestrator, free_address
from tests.cli.turns import two_jobs

Call = Callable[..., Outcome]


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


@pytest.mark.parametrize("arguments", [["-P"], ["-X"], ["--summary"]])
def test_only_silence_ends_a_report_and_not_how_long_it_takes(
    call: Call, orchestrator: GivenOrchestrator, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    whole = call(main, "-j", "17,18", *arguments)
    monkeypatch.setattr(link, "TIMEOUT_S", 0.5)
    orchestrator.goes_on = threading.Event()
    silent = call(main, "-j", "17,18", *arguments)
    orchestrator.goes_on.set()

    assert whole.status == 0
    assert all(seconds is None or seconds > 1e9 for seconds in orchestrator.deadlines)
    assert silent.status == 1
    assert "sent nothing for 0.5 s; if it is busy, try again later, or ask for less" in silent.err
    assert len(silent.err.splitlines()) == 1


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


def test_what_is_asked_for_reaches_the_orchestrator(call: Call, orchestrator: GivenOrchestrator) -> None:
    user = pwd.getpwuid(os.getuid())
    options = [
        "-j",
        "17",
        "--jobs",
        "18,19",
        "-u",
        f"alice,{user.pw_uid}",
        "-G",
        "demo",
        "-s",
        "yielded,R",
    ]
    options += ["-A", "lab,chem", "-r", "ilv", "-N", "n1,gpu[08-10,12]"]

    assert call(main, *options, "-S", "2025-06-01", "-E", "2025-06-02T12:00").status == 0

    request = orchestrator.requests[0]
    assert list(request.job_ids) == ["17", "18", "19"]
    assert list(request.accounts) == ["lab", "chem"]
    assert list(request.partitions) == ["ilv"]
    assert list(request.nodes) == ["n1", "gpu08", "gpu09", "gpu10", "gpu12"]
    assert list(request.users) == ["alice", user.pw_name]
    assert list(request.groups) == ["demo"]
    assert list(request.states) == ["YIELDED", "RUNNING"]
    assert request.end - request.start == pytest.approx(36 * 3600)


def test_without_jobs_and_times_the_report_begins_at_midnight(
    call: Call, orchestrator: GivenOrchestrator
) -> None:
    earliest = midnight(time.time())
    call(main)
    latest = midnight(time.time())
    call(main, "-j", "17")

    assert earliest <= orchestrator.requests[0].start <= latest
    assert orchestrator.requests[1].start == 0


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


@pytest.mark.parametrize("flag", ["-u", "-A", "-r", "-N"])
def test_what_is_no_text_is_refused_in_one_line(
    call: Call, orchestrator: GivenOrchestrator, flag: str
) -> None:
    outcome = call(main, flag, os.fsdecode(b"al\xffce"))

    assert (outcome.status, outcome.out) == (1, "")
    assert "'al\\udcffce' is no text" in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_a_bad_format_of_the_environment_is_named(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINTERLEAVE_FORMAT", "Jobz")

    assert "SINTERLEAVE_FORMAT: no field 'Jobz'; did you mean 'JobID'?" in call(main).err


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


def test_the_jobs_token_is_sent_along(
    call: Call, orchestrator: GivenOrchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERLEAVE_TOKEN", "secret")

    call(main, "-j", "17")

    assert orchestrator.metadata[0]["interleave-token"] == "secret"


def test_the_address_comes_from_the_configuration_and_the_flag_wins(
    call: Call, orchestrator: GivenOrchestrator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    address = os.environ["INTERLEAVE_CLIENT_ORCHESTRATOR"]
    monkeypatch.delenv("INTERLEAVE_CLIENT_ORCHESTRATOR")
    file = tmp_path / "interleave.toml"
    file.write_text(f'[client]\norchestrator = "{address}"\n')

    assert call(main, "--config", str(file)).status == 0
    nowhere = free_address()
    assert nowhere in call(main, "--config", str(file), "--address", nowhere).err


def test_an_orchestrator_that_cannot_be_reached_is_one_line_with_its_address(call: Call) -> None:
    address = free_address()

    outcome = call(main, "--address", address)

    assert (outcome.status, outcome.out) == (1, "")
    assert len(outcome.err.splitlines()) == 1
    assert f"the orchestrator at {address} cannot be reached" in outcome.err


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        ((grpc.StatusCode.PERMISSION_DENIED, "job 17 is not yours", "Denied"), "job 17 is not yours"),
        ((grpc.StatusCode.INTERNAL, "two\nlines", ""), "answered INTERNAL: two lines"),
        ((grpc.StatusCode.UNIMPLEMENTED, "Method not found!", ""), "answered UNIMPLEMENTED"),
    ],
)
def test_what_the_orchestrator_refuses_is_one_line(
    call: Call, orchestrator: GivenOrchestrator, refusal: tuple[grpc.StatusCode, str, str], said: str
) -> None:
    orchestrator.refusal = refusal

    outcome = call(main, "-j", "17")

    assert outcome.status == 1
    assert said in outcome.err
    assert len(outcome.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["-o", "JobId,Wated"], 1, "did you mean 'Waited'?"),
        (["-S", "yesterday"], 1, "now-2hours"),
        (["-S", "today", "-E", "2020-01-01"], 1, "is before the start"),
        (["-s", "YIELD"], 1, "did you mean 'YIELDED'?"),
        (["-s", "zzz"], 1, "states are WAITING, RUNNING"),
        (["-j", "17;18"], 1, "'17;18' is not allowed"),
        (["-G", "a b"], 1, "'a b' is not allowed"),
        (["-u", "4294967294"], 1, "no user has the number 4294967294"),
        (["--config", "/nonexistent.toml"], 1, "/nonexistent.toml: no such file"),
        (["--bogus"], 2, "--bogus"),
        (["--stat", "R"], 2, "--state"),
        (["--jbos", "17"], 2, "--jobs"),
        (["--summary=grop"], 2, "did you mean 'group'?"),
        (["--summary=zzz"], 2, "known are group, user, account, partition, day"),
        (["--summary="], 2, "known are group"),
        (["--summary", "-o", "SavdHours"], 1, "did you mean 'SavedHours'?"),
        (["--units", "X"], 2, "known are K, M, G, T, P"),
        (["--units", "GB"], 2, "did you mean 'G'?"),
        (["-S", "midnite"], 1, "did you mean 'midnight'?"),
        (["-E", "now-2hurs"], 1, "did you mean 'hours'?"),
        (["-S", "now-99999999999days"], 1, "'now-99999999999days' cannot be read; understood are"),
        (["-j", "130-123"], 1, "write the lower number first"),
        (["-j", "1-999999999"], 1, "too many"),
        (["--json", "--yaml"], 1, "exclude each other"),
        (["-N", "n[1-"], 1, "write them as in n1,n[2-4,7]"),
        (["-N", "n[1-999999999]"], 1, "too many"),
        (["-j", "1_[1-999999999]"], 1, "too many"),
        (["-j", "123_[1-3]"], 1, "which job 123_1, 123_2, 123_3 is"),
        (["-j"], 2, "requires an argument"),
        (["--from-json", "/nonexistent.json"], 2, "/nonexistent.json"),
    ],
)
def test_bad_usage_is_answered_in_one_line(call: Call, arguments: list[str], status: int, said: str) -> None:
    outcome = call(main, *arguments)

    assert (outcome.status, outcome.out) == (status, "")
    assert outcome.err.startswith("sinterleave: error: ")
    assert said in outcome.err
    assert len(outcome.err.splitlines()) == 1


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


def test_a_line_that_is_no_slice_is_named(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "slices.json"
    file.write_text('{"jobId": "1"}\nnonsense\n')

    assert "line 2 is not a slice" in call(main, "--from-json", str(file)).err


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_the_version_is_told(call: Call, flag: str) -> None:
    assert call(main, flag).out.startswith("sinterleave, version ")
