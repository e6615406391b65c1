"""`interleave profile`, on a database that an orchestrator left, and `interleave pair`."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from slurm_interleave.client.cli.interleave import main
from slurm_interleave.client.core.states import SliceState
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.sql.rows import Slice
from slurm_interleave.sql.store import Store, row_id
from tests.cli.server import GivenOrchestrator, served

Call = Callable[..., tuple[int, str, str]]
LIGHT = {"name": "light", "period_s": 400, "held_s": 100, "snapshot_s": 1, "restore_s": 1}
FULL = {"name": "full", "period_s": 400, "held_s": 400}


def turn(epoch: int, now: float, name: str) -> Slice:
    granted = now - 10_000 + 350 * epoch
    return Slice(
        epoch=epoch, job_id=f"{name}-1", group="g", role="", uid=1, user="u", account="ml", partition="p",
        name=name, backend="sim", nodes=("n1",), devices=("n1/0",), phase="train", state=SliceState.YIELDED,
        requested=granted, granted=granted, ended=granted + 100, switched=True, switch_s=2, snapshot_s=1,
        restore_s=1, switch_bytes=2**31, off_s=250.0,
    )  # fmt: skip


@pytest.fixture
def call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run `interleave` with the configuration of a site in this folder."""
    import time

    url = f"sqlite:///{tmp_path}/site.db"
    config = tmp_path / "interleave.toml"
    config.write_text(
        f'[orchestrator]\ndatabase = "{url}"\n[client]\nauth = "none"\n'
        f'[pairing]\nprofiles = "{tmp_path}/kept/profiles.json"\n'
    )
    store = Store(url)
    rows: list[Any] = [turn(n + 1, time.time(), "math") for n in range(6)]
    store.record({row_id(row): row for row in rows}, 0)
    store.close()

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main([*arguments, "--config", str(config)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def test_profile_show_lists_what_was_learned(call: Call) -> None:
    status, out, _ = call("profile", "show")

    assert status == 0
    assert "ml/math/-/1x1" in out
    assert "350.0 s" in out


def test_what_was_exported_can_be_imported_and_what_was_learned_comes_first(
    call: Call, tmp_path: Path
) -> None:
    _, exported, _ = call("profile", "export")
    declared = json.loads(exported)["profiles"]
    declared[0]["held_s"] = 7
    file = tmp_path / "declared.json"
    file.write_text(json.dumps({"profiles": [*declared, LIGHT]}))

    assert call("profile", "import", str(file))[0] == 0

    shown = call("profile", "show")[1]
    assert "declared" in shown
    assert "light" in shown
    assert " 7.0 s" not in shown


@pytest.mark.parametrize(
    ("arguments", "job_id", "lines"),
    [
        (["pair"], "", ["group g: 7 (a) + 8 (b): saves 1.0 devices; duty 90%", "9 (c) waits for a place"]),
        (["pair", "--explain", "7"], "7", ["group h: 10 (d) + 7 (a): no: together they need too much"]),
        (["pair"], "", []),
    ],
)
def test_of_live_jobs_the_orchestrator_is_asked_and_it_is_said_as_of_when(
    call: Call, arguments: list[str], job_id: str, lines: list[str]
) -> None:
    given = GivenOrchestrator()
    given.explanation = pb.ExplainReply(lines=lines, at=1.75e9)
    with served(given) as address:
        status, out, err = call(*arguments, "--address", address)

    assert (status, err) == (0, "")
    *told, when = out.splitlines()
    assert told == (lines or ["no job has a place or waits for one"])
    assert when.startswith("by what placement saw at 2025-06-15T")
    assert given.requests == [pb.ExplainRequest(job_id=job_id)]


def test_on_a_login_node_that_has_the_client_alone_it_is_asked_too(tmp_path: Path) -> None:
    config = tmp_path / "interleave.toml"
    config.write_text('[client]\nauth = "none"\n')
    given = GivenOrchestrator()
    given.explanation = pb.ExplainReply(lines=["group g: 7 (a): alone"], at=1.75e9)
    absent = "sqlalchemy", "alembic", "grpc_health", "h11", "prometheus_client"
    code = f"import sys; sys.modules.update(dict.fromkeys({absent}))\n"
    code += "from slurm_interleave.client.cli.interleave import main; sys.exit(main())"
    with served(given) as address:
        argv = [sys.executable, "-c", code, "pair", "--address", address, "--config", str(config)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("group g: 7 (a): alone\n")


def test_an_orchestrator_that_cannot_say_or_refuses_is_one_line(call: Call) -> None:
    older, refusing = GivenOrchestrator(), GivenOrchestrator()
    refusing.explanation = pb.ExplainReply()
    refusing.refusal = (
        grpc.StatusCode.INVALID_ARGUMENT,
        "job 77 has no place and waits for none",
        "BadArgument",
    )
    said = []
    for given in (older, refusing):
        with served(given) as address:
            said.append(call("pair", "--explain", "77", "--address", address))

    assert [(status, out) for status, out, _ in said] == [(1, ""), (1, "")]
    assert said[0][2].endswith("is of an earlier release, which explains no pairing; upgrade it\n")
    assert said[1][2] == "interleave: error: job 77 has no place and waits for none\n"


def test_pair_takes_jobs_of_a_file(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "jobs.json"
    jobs = [{"job_id": str(n), "profile": name} for n, name in enumerate(("light", "light", "full"))]
    file.write_text(json.dumps({"profiles": [LIGHT, FULL], "jobs": jobs}))

    _, out, _ = call("pair", "--jobs", str(file))

    assert "0 (light) + 1 (light): saves" in out
    assert "2 (full): alone" in out


@pytest.mark.parametrize(
    "data",
    [
        {"profiles": [LIGHT]},
        {"profiles": [LIGHT], "jobs": [3]},
        {"profiles": [LIGHT], "jobs": [{"job_id": "1"}]},
        {"profiles": [LIGHT], "jobs": [{"job_id": "1", "profile": "other"}]},
        {"profiles": [LIGHT], "jobs": [{"job_id": 1, "profile": "light"}]},
        {"profiles": [LIGHT], "jobs": [{"job_id": "1", "profile": "light", "hours": "x"}]},
        {"profiles": [LIGHT], "jobs": [{"job_id": "1", "profile": "light", "color": 1}]},
        *(
            {"profiles": [LIGHT], "jobs": [{"job_id": "1", "profile": "light", name: value}]}
            for name in ("hours", "epsilon", "host_bytes")
            for value in (math.nan, math.inf, -4, 10**400, True)
        ),
        {"profiles": [LIGHT], "jobs": [{"job_id": "1", "profile": "light"}] * 2},
        {"profiles": [LIGHT], "jobs": [{"job_id": "1", "profile": ["light"]}]},
        {"profiles": [{**LIGHT, "spread": math.nan}], "jobs": []},
        [],
    ],
)
def test_a_file_that_names_no_jobs_is_refused_in_one_line(call: Call, tmp_path: Path, data: Any) -> None:
    file = tmp_path / "jobs.json"
    file.write_text(json.dumps(data))

    status, _, err = call("pair", "--jobs", str(file))

    assert status == 1
    assert err.count("\n") == 1


def test_pair_says_what_becomes_of_jobs_on_two_pools(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "pools.json"
    pools = [
        {"job_id": "long", "rollout_s": 214, "train_s": 125, "sync_s": 1.4, "switch_s": 1},
        {"job_id": "short", "rollout_s": 26, "train_s": 61, "sync_s": 0.8, "switch_s": 1},
    ]
    file.write_text(json.dumps({"pools": pools}))

    status, out, _ = call("pair", "--pools", str(file))

    assert status == 0
    assert "a step of each in 341.4 s at least; duty of the samplers 71%, of the trainers 55%" in out
    assert "long: 1.00 times as long as alone\n" in out
    assert "short: 3.89 times as long as alone: no: it may take 1.10" in out


@pytest.mark.parametrize(
    "pools",
    [None, [], [3], [{"job_id": "1"}], [{"job_id": "1", "rollout_s": 0, "train_s": 0}],
     [{"job_id": "1", "rollout_s": "x", "train_s": 1}], [{"job_id": "1", "rollout_s": True, "train_s": 1}],
     [{"job_id": "1", "rollout_s": 1, "train_s": 1}] * 2, [{"job_id": 1, "rollout_s": 1, "train_s": 1}]],
)  # fmt: skip
def test_pools_that_say_nothing_are_refused_in_one_line(call: Call, tmp_path: Path, pools: Any) -> None:
    file = tmp_path / "pools.json"
    file.write_text(json.dumps({"pools": pools}))

    status, _, err = call("pair", "--pools", str(file))

    assert (status, err.count("\n")) == (1, 1)


def test_a_rule_that_cannot_be_is_refused(call: Call, tmp_path: Path) -> None:
    with (tmp_path / "interleave.toml").open("a") as config:
        config.write("members = 1\n")

    jobs = tmp_path / "jobs.json"
    jobs.write_text(json.dumps({"profiles": [], "jobs": []}))

    status, _, err = call("pair", "--jobs", str(jobs))

    assert status == 1
    assert "members 1" in err


def test_of_a_site_without_turns_it_is_said_what_that_takes(call: Call, tmp_path: Path) -> None:
    empty = f"sqlite:///{tmp_path}/empty.db"
    Store(empty).close()

    status, out, err = call("profile", "show", "--database", empty)

    assert (status, len(out.splitlines())) == (0, 1)
    assert "takes 5 turns of it" in err
