"""`interleave doctor` on a cluster that is installed as it should be, and on one that is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lab import Cluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]
PROGRAM = Path(sys.executable).parent / "interleave"


def doctor(cluster: Cluster, *arguments: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    argv = [PROGRAM, "doctor", "--json", "--node", "n1", *arguments]
    env = {**os.environ, **cluster.env}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env)
    assert done.stderr == ""
    found: dict[str, list[dict[str, Any]]] = {}
    for finding in json.loads(done.stdout)["findings"]:
        found.setdefault(finding["check"], []).append(finding)
    return done.returncode, found


def test_all_is_well_where_all_is_installed(cluster: Cluster) -> None:
    job = cluster.sbatch(["sleep", "300"], group="looked-at", gres="gpu:1")
    cluster.wait(job, "RUNNING")

    code, found = doctor(cluster, "--job", job)
    cluster.scancel(job)

    bad = [one for rows in found.values() for one in rows if one["level"] != "ok"]
    assert (code, bad) == (0, [])
    wanted = {
        "configuration", "munge", "orchestrator", "clock", "slurm", "spank plugin", "job_submit", "Prolog",
        "Epilog", "EpilogSlurmctld", "PrologFlags", "GresTypes", "partition", "gateway", "nodes", "database",
        "agent",
    }  # fmt: skip
    assert wanted | {f"job {job}"} == found.keys()
    assert "commands (" in found["gateway"][0]["text"]
    chosen = [line for line in cluster.logs("interleaved", 10_000).splitlines() if "gateway.chosen" in line]
    assert chosen
    assert all("gateway=commands" in line for line in chosen)
    assert "RUNNING" in found[f"job {job}"][0]["text"]
    assert "group looked-at" in found[f"job {job}"][0]["text"]


def test_what_is_missing_is_named_with_what_to_do(cluster: Cluster) -> None:
    cluster.stop("agent-n1")
    lua = cluster.layout.etc / "job_submit.lua"
    text = lua.read_text()
    lua.write_text(text.replace("return interleave.submit(job_desc, part_list)", "return slurm.SUCCESS"))
    try:
        code, found = doctor(cluster)
    finally:
        lua.write_text(text)
        cluster.start_again("agent-n1")

    bad = {check: rows[0]["advice"] for check, rows in found.items() if rows[0]["level"] == "error"}
    assert code == 1
    assert bad.keys() == {"agent", "agents", "job_submit"}
    assert "does not call interleave.submit(...)" in found["job_submit"][0]["text"]
    assert "no agent is connected from n1" in found["agents"][0]["text"]
    assert all(bad.values())
