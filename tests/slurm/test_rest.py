"""Jobs by slurmrestd, which knows no SPANK options: their comment or `spank_environment` asks."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from lab import Cluster

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("nothing_left"),
    pytest.mark.skipif(
        shutil.which("slurmrestd") is None and os.environ.get("CI") != "true",
        reason="slurmrestd is not installed; run: deploy/lab/install-packages.sh",
    ),
]
Piece = Callable[[str, str], None]


def data_parser(cluster: Cluster) -> str:
    """Return the one that all later releases have; empty for 22.05, which has none."""
    return "v0.0.42" if cluster.layout.version >= (24, 11) else ""


def request_of(path: str, body: str) -> str:
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        "Accept: application/json",
        "Connection: Close",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", body])


def submit(cluster: Cluster, **fields: object) -> tuple[dict[str, Any], str]:
    """Have slurmrestd submit a job of one GPU as user nobody; return its answer and its log.

    It reads one request from its input, as under inetd; who asks is who runs it (rest_auth/local).
    """
    parser, path = data_parser(cluster), "/usr/bin:/bin"
    environment: object = [f"PATH={path}"] if parser else {"PATH": path}
    gpu = {"tres_per_node": "gres/gpu:1"} if parser else {"gpus_per_node": "1"}
    job = {
        "name": "rest",
        "environment": environment,
        "current_working_directory": str(cluster.out),
        "standard_output": f"{cluster.out}/%j.out",
        **gpu,
        **fields,
    }
    body = json.dumps({"script": "#!/bin/sh\nenv\n", "job": job})
    argv = ["slurmrestd", "-a", "rest_auth/local"]
    argv += ["-s", "openapi/slurmctld", "-d", parser] if parser else ["-s", "openapi/v0.0.38"]
    done = subprocess.run(
        ["sh", "-c", f"cat | {shlex.join(argv)} | cat"],  # both ends must be pipes of that user
        input=request_of(f"/slurm/{parser or 'v0.0.38'}/job/submit", body),
        env=cluster.env,
        user="nobody",
        group="nogroup",
        extra_groups=[],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    start = done.stdout.find("{")
    assert start > 0, done
    return json.JSONDecoder().raw_decode(done.stdout, start)[0], done.stderr


def seen_by(cluster: Cluster, job_id: str) -> dict[str, str]:
    cluster.wait(job_id)
    return dict(line.partition("=")[::2] for line in cluster.output(job_id, 1000).splitlines())


def test_a_job_by_slurmrestd_asks_by_its_comment(cluster: Cluster) -> None:
    answer, _ = submit(cluster, comment="night run, interleave=rest")

    seen = seen_by(cluster, str(answer["job_id"]))
    assert seen["INTERLEAVE_GROUP"] == "rest"
    assert seen["INTERLEAVE_TOKEN"]
    assert seen["CUDA_VISIBLE_DEVICES"].startswith("SIM-n")


def test_a_job_by_slurmrestd_asks_by_its_spank_environment(cluster: Cluster, piece: Piece) -> None:
    asked = ["INTERLEAVE_GROUP=rest-spank", "INTERLEAVE_ROLE=trainer", "INTERLEAVE_MAX_WAIT=90"]

    answer, said = submit(cluster, spank_environment=asked)

    takes = "job_id" in answer
    piece("By slurmrestd a job asks by", "its spank_environment, or its comment" if takes else "its comment")
    assert takes == bool(data_parser(cluster)), said
    if takes:
        seen = seen_by(cluster, str(answer["job_id"]))
        wanted = dict(entry.partition("=")[::2] for entry in asked)
        assert {name: seen[name] for name in wanted} == wanted
        assert seen["INTERLEAVE_TOKEN"]
    else:
        assert "spank_environment" in str(answer["errors"])


def test_what_slurmrestd_may_not_submit_is_refused_and_its_log_says_why(cluster: Cluster) -> None:
    answer, said = submit(cluster, comment="interleave=a/b")

    assert not answer.get("job_id")
    assert answer["errors"]
    assert "interleave: group name 'a/b' is not allowed" in said
    assert not cluster.command("squeue", "--noheader").strip()
