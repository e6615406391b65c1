"""What `sinterleave` asks, and of whom; and the one line where it is told no, or cannot ask."""

from __future__ import annotations

import os
import pwd
import threading
import time
from pathlib import Path

import grpc
import pytest

from slurm_interleave.client.cli import link
from slurm_interleave.client.cli.sinterleave import main
from slurm_interleave.client.cli.times import midnight
from tests.cli.conftest import Call
from tests.cli.server import GivenOrchestrator, free_address


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


def test_a_line_that_is_no_slice_is_named(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "slices.json"
    file.write_text('{"jobId": "1"}\nnonsense\n')

    assert "line 2 is not a slice" in call(main, "--from-json", str(file)).err
