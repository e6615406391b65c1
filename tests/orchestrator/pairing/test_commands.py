"""`interleave profile` and `interleave pair`, on a database that an orchestrator left."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_interleave.client.cli.interleave import main
from slurm_interleave.client.core.states import SliceState
from slurm_interleave.sql.rows import Member, Part, Slice
from slurm_interleave.sql.store import Store, row_id

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
        f'[orchestrator]\ndatabase = "{url}"\n[pairing]\nprofiles = "{tmp_path}/kept/profiles.json"\n'
    )
    store = Store(url)
    rows: list[Any] = [turn(n + 1, time.time(), "math") for n in range(6)]
    for job, name, group in (("7", "math", "g"), ("8", "math", "g"), ("9", "new", "g"), ("10", "math", "h")):
        member = Member(job, group, account="ml", name=name, nodes=("n1",))
        rows += [member, Part(job, group, "n1", "a", (0,))]
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


def test_pair_puts_live_jobs_together_and_says_whose_workload_is_not_known(call: Call) -> None:
    status, out, _ = call("pair")

    assert status == 0
    assert "7 (ml/math/-/1x1) + 8 (ml/math/-/1x1): saves" in out
    assert "9 (ml/new/-/1x1): not measured yet" in out


def test_pair_explains_the_partners_of_a_job_in_numbers(call: Call) -> None:
    status, out, _ = call("pair", "--explain", "7")

    assert status == 0
    assert "slowdown" in out


def test_live_jobs_stay_in_their_groups(call: Call) -> None:
    out = call("pair")[1].splitlines()
    told = call("pair", "--explain", "10")[1].splitlines()

    assert not [line for line in out if "10 (" in line and "saves" in line]
    assert "10 (ml/math/-/1x1): nobody to gain from in its group h" in out
    assert [line.partition(": no: ")[2] for line in told[:2]] == [
        "jobs 10 and 7 run in groups h and g already",
        "jobs 10 and 8 run in groups h and g already",
    ]


def test_pair_says_what_it_does_not_know_of_live_jobs_and_only_of_them(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "jobs.json"
    file.write_text(json.dumps({"profiles": [LIGHT], "jobs": [{"job_id": "1", "profile": "light"}]}))

    for arguments in (["pair"], ["pair", "--explain", "7"]):
        last = call(*arguments)[1].splitlines()[-1]
        assert "not known of jobs that run" in last
        assert "time that each has left" in last
        assert "host memory" in last
    assert call("pair", "--jobs", str(file))[1] == "1 (light): alone\n"


def test_a_job_with_two_groups_is_explained_in_both(call: Call, tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/site.db")
    rows: list[Any] = []
    for job, group in (("7", "h"), ("11", "h")):
        member = Member(job, group, account="ml", name="math", nodes=("n1",))
        rows += [member, Part(job, group, "n1", "a", (1,))]
    store.record({row_id(row): row for row in rows}, 0)
    store.close()

    out = call("pair", "--explain", "7")[1]

    for partner in ("8", "11"):
        assert re.search(rf"^(7 .*\+ {partner} |{partner} .*\+ 7 ).*: saves", out, re.MULTILINE)


@pytest.mark.parametrize(("job", "why"), [("9", "nothing is known"), ("77", "takes no turns")])
def test_pair_cannot_explain_a_job_of_which_nothing_is_known(call: Call, job: str, why: str) -> None:
    status, _, err = call("pair", "--explain", job)

    assert status == 1
    assert why in err


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
    assert "a step of each in 340.4 s at least; duty of the samplers 71%, of the trainers 55%" in out
    assert "long: 1.00 times as long as alone\n" in out
    assert "short: 3.88 times as long as alone: no: it may take 1.10" in out


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

    status, _, err = call("pair")

    assert status == 1
    assert "members 1" in err


def test_of_a_site_without_jobs_that_is_said_in_place_of_what_is_not_known_of_them(
    call: Call, tmp_path: Path
) -> None:
    empty = f"sqlite:///{tmp_path}/empty.db"
    Store(empty).close()

    assert call("pair", "--database", empty) == (0, "no job takes turns now\n", "")
    status, out, err = call("profile", "show", "--database", empty)
    assert (status, len(out.splitlines())) == (0, 1)
    assert "takes 5 turns of it" in err
