"""What releases of Slurm do differently, and that ours works with each: the table in slurm_plugin/README.md.

Each test notes what this release does (`piece`); `make test-matrix` makes the table from the notes of all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from lab import Cluster
from lab.processes import LabError
from slurm_interleave.orchestrator.placement.admin_comment import parse_comment
from tests.slurm.members import eventually

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

Piece = Callable[[str, str], None]
AS_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def test_the_devices_of_a_job_are_those_of_the_book(cluster: Cluster, piece: Piece) -> None:
    go = cluster.out / "go-book"
    script = f"echo $CUDA_VISIBLE_DEVICES; while ! test -e {go}; do sleep 0.1; done"
    job = cluster.sbatch(["sh", "-c", script], group="book", gres="gpu:1")
    cluster.wait(job, "RUNNING")
    shown = cluster.command("scontrol", "--details", "show", "job", job)
    go.touch()
    cluster.wait(job)

    place = parse_comment(cluster.job(job)["AdminComment"])
    assert place is not None
    node = cluster.job(job)["NodeList"]
    assert cluster.output(job).strip() == f"SIM-{node}-{place.indices[0]}"
    pinned = re.search(rf"GRES=ilv[a-h]:g{place.indices[0]}:1\(IDX:", shown)
    piece(
        "Slurm's own books name the devices of a job (lanes)",
        "yes" if pinned else "their number alone (tokens)",
    )
    assert bool(pinned) == (cluster.layout.mode == "lane")


def test_a_user_is_refused_the_release_of_a_job_that_waits_for_its_devices(
    cluster: Cluster, piece: Piece
) -> None:
    cluster.kill9("interleaved")
    try:
        job = cluster.sbatch(
            ["true"], group="mine", gres="gpu:1", user="nobody", options=["--output=/dev/null"]
        )
        with pytest.raises(LabError) as refused:
            cluster.command(*AS_NOBODY, "scontrol", "release", job)
        assert cluster.held(job)
        cluster.command(*AS_NOBODY, "scancel", job)
    finally:
        cluster.start_again("interleaved")

    told = "interleave" in str(refused.value).partition("exit code")[2]
    piece(
        "A refused `scontrol release` or `update` tells the user why",
        "yes" if told else "slurmctld's log does",
    )
    assert told or "interleave" in (cluster.layout.log / "slurmctld.log").read_text()


def test_a_job_with_an_environment_of_its_own_has_ours_too(cluster: Cluster, piece: Piece) -> None:
    file = cluster.out / "pieces-environment"
    file.write_bytes(b"PATH=/usr/bin:/bin\0OWN=1\0")  # 22.05 then loses the option in the batch step
    job = cluster.sbatch(["env"], group="own", gres="gpu:1", options=[f"--export-file={file}"])

    cluster.wait(job)

    seen = cluster.output(job, 1000).splitlines()
    piece("`sbatch --export-file` reaches a job, with or without ours", "yes" if "OWN=1" in seen else "no")
    assert "INTERLEAVE_GROUP=own" in seen
    assert any(line.startswith("INTERLEAVE_TOKEN=") and len(line) > 30 for line in seen)


def test_the_queue_is_read_in_the_form_that_this_release_writes(cluster: Cluster, piece: Piece) -> None:
    queue = json.loads(cluster.command("squeue", "--json"))
    parser = queue["meta"].get("plugin", {}).get("data_parser", "openapi")
    piece("`squeue --json` is written by", str(parser).removeprefix("data_parser/"))
    assert isinstance(queue["jobs"], list)


def test_the_figures_of_a_job_have_a_field_of_their_own(cluster: Cluster, piece: Piece) -> None:
    job = cluster.sbatch(["sleep", "300"], group="figures", gres="gpu:1")
    cluster.wait(job, "RUNNING")
    try:
        cluster.command("scontrol", "update", f"JobId={job}", "Extra=figures")
        known = "Extra=figures" in cluster.command("scontrol", "show", "job", job)
    except LabError:
        known = False
    piece("`Extra` of a running job can be set", "yes" if known else "no; AdminComment can")
    cluster.command("scontrol", "update", f"JobId={job}", f"AdminComment={cluster.job(job)['AdminComment']}")
    cluster.scancel(job)
    assert eventually(lambda: cluster.state(job) == "CANCELLED")


def test_the_processes_of_a_job_are_found_wherever_its_cgroup_lies(fenced: Cluster, piece: Piece) -> None:
    job = fenced.sbatch(["cat", "/proc/self/cgroup"], group="found", gres="gpu:1")
    fenced.wait(job)

    paths = [Path(line.rpartition(":")[2]) for line in fenced.output(job).splitlines()]
    (name,) = {path.parts[3] for path in paths if len(path.parts) > 4 and path.parts[1].startswith("slurm")}
    piece("The cgroup of job 7 is called", "job_7" if name == f"job_{job}" else "by its SLUID, s...")
