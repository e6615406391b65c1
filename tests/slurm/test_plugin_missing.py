"""Nodes and login hosts whose plugin is missing, or is one for another release of Slurm."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import Cluster, SubmitRefused
from lab.hooks import PLUGIN
from tests.slurm.members import eventually

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]


@pytest.fixture
def plugstack(cluster: Cluster) -> Iterator[Path]:
    """The list of plugins, which each of Slurm's programs reads when it starts; as it was afterwards."""
    path = cluster.layout.etc / "plugstack.conf"
    before = path.read_text()
    yield path
    path.write_text(before)


def for_another_release(folder: Path) -> Path:
    """Return a copy of the plugin that says it was built for the next release."""
    listed = subprocess.run(["nm", "-D", PLUGIN], capture_output=True, text=True, check=True).stdout
    (address,) = (
        int(line.split()[0], 16) for line in listed.splitlines() if line.endswith(" plugin_version")
    )
    content = bytearray(PLUGIN.read_bytes())
    content[address + 1] += 1  # 0xMMmmuu: the minor part, little endian
    path = folder / "interleave.so"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("found", [for_another_release, lambda folder: folder / "missing.so"])
def test_a_plugin_for_another_release_or_no_file_stops_neither_slurmd_nor_a_job_but_those_that_need_it(
    cluster: Cluster, plugstack: Path, tmp_path: Path, found: Callable[[Path], Path]
) -> None:
    plugstack.write_text(f"optional {found(tmp_path)}\n")

    cluster.restart("slurmd-n3")
    plain = cluster.sbatch(["srun", "echo", "well"])
    cluster.wait(plain)
    assert cluster.output(plain).splitlines()[-1] == "well"

    with pytest.raises(SubmitRefused, match="unrecognized option '--interleave-group"):
        cluster.sbatch(["true"], group="other-release", gres="gpu:1")


def test_a_job_on_a_node_without_the_plugin_starts_without_our_variables_and_is_registered(
    cluster: Cluster, plugstack: Path
) -> None:
    cluster.kill9("interleaved")
    try:
        job = cluster.sbatch(["env"], group="no-plugin", gres="gpu:1")
        plugstack.write_text("")
    finally:
        cluster.start_again("interleaved")
    cluster.wait(job)

    seen = cluster.output(job, 1000)
    assert "INTERLEAVE_TOKEN" not in seen
    registered = f"event=job.registered job={job}"
    assert eventually(lambda: registered in cluster.logs("interleaved", 10000))
