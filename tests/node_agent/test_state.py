from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent.config import AgentConfig, load
from slurm_interleave.node_agent.contexts import JobContext
from slurm_interleave.node_agent.link import back_offs
from slurm_interleave.node_agent.state import Job, Request, Reservation, State

JOB = Job(
    Request("17", "demo", "trainer", (0, 1), 1000, 1000, "alice", nodes=("n1", "n2")),
    attempt="a1",
    token="secret",
    context=JobContext(Context.SAVED, 5, saved_by="app_channel"),
)


def test_what_is_saved_is_read_again_as_it_was(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.jobs["17"] = JOB
    state.reservations["18"] = Reservation("18", "demo", "", (1,), "ilva", ("n1",))
    state.save()

    again = State(tmp_path)

    assert again.jobs == {"17": JOB}
    assert again.reservations == state.reservations


def test_the_file_is_closed_to_others_since_tokens_are_in_it(tmp_path: Path) -> None:
    State(tmp_path).save()

    assert (tmp_path / "agent.json").stat().st_mode & 0o077 == 0


def test_what_another_boot_left_is_void(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.jobs["17"] = JOB
    state.save()
    path = tmp_path / "agent.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "boot": "another"}))

    assert State(tmp_path).jobs == {}


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"boot": 1}', b"\xff", b"[" * 100_000])
def test_a_file_that_cannot_be_read_does_not_stop_the_agent(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "agent.json").write_bytes(text)

    assert State(tmp_path).jobs == {}


def rewritten(folder: Path, change: Callable[[dict[str, Any]], object]) -> State:
    """Return what is read of the state of job 17 after *change*."""
    state = State(folder)
    state.jobs["17"] = JOB
    state.save()
    path = folder / "agent.json"
    stored = json.loads(path.read_text())
    change(stored)
    path.write_text(json.dumps(stored))
    return State(folder)


def test_what_a_later_release_wrote_is_read_as_far_as_it_is_known(tmp_path: Path) -> None:
    def add(stored: dict[str, Any]) -> None:
        job = stored["jobs"][0]
        stored["colour"] = job["colour"] = job["request"]["colour"] = job["context"]["colour"] = "green"

    assert rewritten(tmp_path, add).jobs == {"17": JOB}


def test_what_an_earlier_release_did_not_write_has_its_default(tmp_path: Path) -> None:
    def remove(stored: dict[str, Any]) -> None:
        job = stored["jobs"][0]
        del job["had_processes"], job["ended"], job["request"]["nodes"], job["context"]["saved_by"]

    [job] = rewritten(tmp_path, remove).jobs.values()

    assert job.context == replace(JOB.context, saved_by="")
    assert job.request == replace(JOB.request, nodes=())


def test_a_job_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    state = rewritten(tmp_path, lambda stored: stored["jobs"].insert(0, {"request": 5}))

    assert state.jobs == {"17": JOB}


def test_a_state_that_only_a_later_release_knows_is_unknown(tmp_path: Path) -> None:
    state = rewritten(tmp_path, lambda stored: stored["jobs"][0]["context"].update(state="compressed"))

    assert state.jobs["17"].context.state is Context.UNKNOWN


def test_each_node_of_one_host_has_its_own_folders(tmp_path: Path) -> None:
    path = tmp_path / "interleave.toml"
    path.write_text(
        '[agent]\nrun_dir = "/run/i/%n"\nstate_dir = "/var/i/%n"\n[sim]\ndirectory = "/dev/shm/i/%n"\n'
    )

    agent, sim = load(path, {"node": "n7"})

    folders = (agent.run_dir, agent.state_dir, sim.directory)
    assert folders == (Path("/run/i/n7"), Path("/var/i/n7"), Path("/dev/shm/i/n7"))


@pytest.mark.parametrize("node", [".", "..", "a/b", "n 1", "é", "%n", "n" * 129])
def test_a_name_that_no_node_can_have_is_refused_at_the_start(tmp_path: Path, node: str) -> None:
    (tmp_path / "c").write_text(f"[agent]\nnode = '{node}'\n")

    with pytest.raises(ConfigError, match=r"\[agent\] node"):
        load(tmp_path / "c", {})


def test_a_run_dir_too_long_for_sockets_is_refused_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "interleave.toml"
    path.write_text(f'[agent]\nrun_dir = "/{"x" * 100}"\n')

    with pytest.raises(ConfigError, match="longer than 107 bytes; choose a shorter one"):
        load(path, {})


def test_the_v1alpha1_service_is_not_for_the_network() -> None:
    with pytest.raises(ConfigError, match="loopback alone"):
        AgentConfig(listen="0.0.0.0:9001")


def test_the_wait_between_tries_grows_to_two_seconds_and_is_never_the_same_for_all() -> None:
    longest, shortest = back_offs(lambda: 0.0), back_offs(lambda: 1.0)

    waits = [(next(longest), next(shortest)) for _ in range(7)]

    assert waits[0] == (0.1, 0.05)
    assert waits[-1] == (2.0, 1.0)


def test_what_moved_since_the_file_was_written_is_read_from_the_journal(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.jobs["17"] = replace(JOB)
    state.save()

    state.jobs["17"].context = JobContext(Context.RESIDENT)
    state.save_context(state.jobs["17"])

    assert State(tmp_path).jobs["17"].context == JobContext(Context.RESIDENT)


def test_a_line_that_a_crash_cut_short_hides_none_before_or_after_it(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.jobs["17"] = replace(JOB, context=JobContext(Context.RESIDENT))
    state.save()
    state.jobs["17"].context = JobContext(Context.SAVING)
    state.save_context(state.jobs["17"])
    with (tmp_path / "agent.journal").open("a") as journal:
        journal.write('{"series": 1, "job": "17", "cont')

    again = State(tmp_path)
    again.jobs["17"].context = JobContext(Context.SAVED, 9)
    again.save_context(again.jobs["17"])

    assert State(tmp_path).jobs["17"].context == JobContext(Context.SAVED, 9)


@pytest.mark.parametrize("line", [b"\xff", b"5", b"[]", b"null", b"[" * 100_000, b'{"context": 5}'])
def test_a_line_that_a_disk_has_spoiled_hides_none_after_it(tmp_path: Path, line: bytes) -> None:
    state = State(tmp_path)
    state.jobs["17"] = job = replace(JOB)
    state.save()
    job.context = JobContext(Context.RESIDENT)
    state.save_context(job)
    journal = tmp_path / "agent.journal"
    ours = json.loads(journal.read_text())
    if b"context" in line:
        line = json.dumps({**ours, "context": 5}).encode()
    journal.write_bytes(line + b"\n" + journal.read_bytes())

    assert State(tmp_path).jobs["17"].context == job.context


def test_a_journal_that_is_older_than_the_file_changes_nothing(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.jobs["17"] = replace(JOB)
    state.save()
    state.save_context(replace(JOB, context=JobContext(Context.FAULTED)))
    old = (tmp_path / "agent.journal").read_text()
    state.save()
    (tmp_path / "agent.journal").write_text(old)

    assert State(tmp_path).jobs["17"].context == JOB.context


@pytest.mark.parametrize("key", ["watch_s", "operation_timeout_s"])
@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), float("inf")])
def test_times_that_cannot_pass_are_refused(key: str, seconds: float) -> None:
    with pytest.raises(ConfigError, match=rf"\[agent\] {key} = .*: must be more than 0"):
        AgentConfig(**{key: seconds})  # type: ignore[arg-type]
