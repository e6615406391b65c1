from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_interleave.client.core.errors import SlurmFailed
from slurm_interleave.client.core.hostlist import expand
from slurm_interleave.orchestrator.placement.squeue import SlurmJob, parse_squeue

# The output of 22.05.8, 24.11.5 and 26.05.5, cut to the fields that matter; `deploy/lab` made the clusters.
RECORDED = Path(__file__).parent / "squeue"
RELEASES = ["22.05", "24.11", "26.05"]


def recorded(name: str) -> dict[str, SlurmJob]:
    return {job.job_id: job for job in parse_squeue((RECORDED / f"{name}.json").read_text())}


@pytest.mark.parametrize("release", RELEASES)
def test_each_release_tells_held_running_and_over_apart(release: str) -> None:
    jobs = recorded(release)

    assert jobs["1"].held
    assert not jobs["1"].started
    assert jobs["2"].started
    assert not jobs["2"].pending
    assert jobs["2"].nodes == ("n2",)
    assert jobs["2"].admin_comment.endswith("state=placed")


@pytest.mark.parametrize("release", RELEASES)
def test_a_job_of_two_nodes_names_both(release: str) -> None:
    assert recorded(release)["5"].nodes == ("n1", "n2")


def test_a_job_is_over_only_when_it_is_no_longer_completing() -> None:
    over = recorded("22.05")["3"]

    assert over.finished
    assert not replace(over, states=over.states | {"COMPLETING"}).finished


@pytest.mark.parametrize("release", RELEASES)
def test_a_requeued_job_is_pending_and_not_held(release: str) -> None:
    job = recorded(f"{release}-requeued")["2"]

    assert job.pending
    assert not job.held


def test_a_job_that_could_not_be_launched_is_not_ours_to_release() -> None:
    job = SlurmJob("1", frozenset({"PENDING"}), 0, "launch_failed_requeued_held", "", ())

    assert not job.held


def test_an_empty_queue_with_an_error_in_it_is_a_failure_not_an_empty_queue() -> None:
    with pytest.raises(SlurmFailed, match="Failed while looking for jobs"):
        recorded("22.05-slurmctld-down")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"jobs": [{"job_id": 1}]}', '{"jobs": null}', "squeue: error"]
)
def test_an_unknown_form_is_a_failure(text: str) -> None:
    with pytest.raises(SlurmFailed):
        parse_squeue(text)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("n1", ("n1",)),
        ("n1,n2", ("n1", "n2")),
        ("n[1-3,7],gpu[01-02]", ("n1", "n2", "n3", "n7", "gpu01", "gpu02")),
        ("r[1-2]n[09-10]", ("r1n09", "r1n10", "r2n09", "r2n10")),
        ("a-1,b[2]-ib", ("a-1", "b2-ib")),
    ],
)
def test_slurms_short_form_of_names_is_spelled_out(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names


def test_the_account_of_a_job_is_read_where_there_is_one() -> None:
    text = (RECORDED / "22.05.json").read_text()
    data = json.loads(text)
    data["jobs"][1]["account"] = "physics"

    assert [job.account for job in parse_squeue(json.dumps(data))][:2] == ["", "physics"]


def limited(states: str, **times: object) -> SlurmJob:
    record = {"job_id": 1, "job_state": states, "priority": 1, **times}
    [job] = parse_squeue(json.dumps({"jobs": [record]}))
    return job


@pytest.mark.parametrize("limit", [90, {"set": True, "infinite": False, "number": 90}])
def test_a_job_has_left_what_its_limit_says_and_once_it_runs_what_remains_of_it(limit: object) -> None:
    runs = limited("RUNNING", time_limit=limit, end_time=10_000)

    assert limited("PENDING", time_limit=limit, end_time=10_000).hours_left(9_000) == 2
    assert runs.hours_left(10_000 - 5400) == 2
    assert runs.hours_left(9_999) == 1
    assert runs.hours_left(12_000) == 1  # Slurm ends it any moment


@pytest.mark.parametrize(
    "limit", [None, 0, 4294967295, 4294967294, {"set": True, "infinite": True, "number": 0}, {"set": False}]
)
def test_without_a_limit_it_is_not_known_what_a_job_has_left(limit: object) -> None:
    if isinstance(limit, dict):
        limit = {"infinite": False, "number": 0, **limit}

    assert limited("RUNNING", time_limit=limit, end_time=10_000).hours_left(1) == 0
