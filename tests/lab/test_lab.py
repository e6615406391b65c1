"""The lab itself: what it starts is gone afterwards, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from lab import Cluster, LabError, why_not
from lab.processes import Daemon, belongings, free_ports, wait_until
from lab.slurm_conf import parse_version
from tests import conftest

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).parents[2]

HOLD_OPEN = """
import sys
from lab import Cluster
with Cluster.start(interleave=False, nodes=("n1",), plain_nodes=("n3",)) as cluster:
    job = cluster.sbatch(["sleep", "300"], options=["--export=NONE"])
    cluster.wait(job, "RUNNING")
    print(cluster.root, cluster.scratch.sim, flush=True)
    sys.stdin.read()
"""


def gone(*folders: Path) -> bool:
    return not any(folder.exists() for folder in folders) and not any(map(belongings, folders))


@pytest.mark.slurm
def test_a_cluster_leaves_no_process_and_no_folder() -> None:
    with Cluster.start(interleave=False) as cluster:
        job = cluster.sbatch(["sleep", "300"])
        cluster.wait(job, "RUNNING")
        assert belongings(cluster.root)

    assert gone(cluster.root, cluster.scratch.sim)


@pytest.mark.slurm
def test_an_error_inside_ends_the_cluster_too() -> None:
    with pytest.raises(ZeroDivisionError), Cluster.start(interleave=False) as cluster:
        _ = 1 / 0

    assert gone(cluster.root, cluster.scratch.sim)


@pytest.mark.slurm
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_cluster_ends_with_the_process_that_started_it(number: signal.Signals) -> None:
    environment = {**os.environ, "PYTHONPATH": "deploy"}
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_OPEN],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        folders = [Path(word) for word in owner.stdout.readline().split()]
        assert folders

        owner.send_signal(number)
        owner.wait(90)

    assert wait_until(lambda: gone(*folders), 90)


@pytest.mark.slurm
def test_a_daemon_that_does_not_start_is_reported_with_the_end_of_its_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lab.slurm_conf._MEMORY_MIB", "lots")

    problem = r"(?s)slurmctld ended with exit code 1.*RealMemory"
    with pytest.raises(LabError, match=problem), Cluster.start(interleave=False):
        pass


def test_a_daemon_that_loses_the_word_to_end_hears_it_again_before_it_is_killed(tmp_path: Path) -> None:
    loses_one = "trap 'trap - TERM' TERM; echo ready; while :; do sleep 0.05; done"
    daemon = Daemon(
        "deaf", ["sh", "-c", loses_one], tmp_path / "log", os.environ, lambda: daemon.said("ready")
    )
    daemon.spawn()
    daemon.wait_ready()

    daemon.stop()

    assert daemon.process is not None
    assert daemon.process.returncode == -signal.SIGTERM


@pytest.mark.slurm
def test_a_folder_with_something_in_it_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")

    with pytest.raises(LabError, match="not empty"), Cluster.start(tmp_path):
        pass

    assert (tmp_path / "thesis.txt").exists()


def test_a_folder_whose_path_is_too_long_for_sockets_is_refused(tmp_path: Path) -> None:
    if why_not():
        pytest.skip(why_not())
    with pytest.raises(LabError, match="too long"), Cluster.start(tmp_path / ("x" * 80)):
        pass


def test_free_ports_are_different_and_free() -> None:
    ports = free_ports(20)

    assert len(set(ports)) == 20


def test_two_processes_are_given_different_ports() -> None:
    script = "from lab.processes import free_ports; print(*free_ports(390)); input()"
    environment = {**os.environ, "PYTHONPATH": "deploy"}
    argv = [sys.executable, "-c", script]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as other:
        assert other.stdout is not None
        theirs = {int(port) for port in other.stdout.readline().split()}
        ours = {port for _ in range(10) for port in free_ports(200)}
        other.kill()

    assert len(theirs) == 390
    assert not ours & theirs


def test_the_ports_of_a_process_are_given_back_without_a_warning() -> None:
    script = "from lab.processes import free_ports; free_ports(1)"
    argv = [sys.executable, "-X", "dev", "-c", script]

    done = subprocess.run(
        argv, env={**os.environ, "PYTHONPATH": "deploy"}, capture_output=True, text=True, check=True
    )

    assert done.stderr == ""


@pytest.mark.parametrize(
    ("text", "version"),
    [("slurm 25.11.2", (25, 11)), ("slurm-wlm 22.05.8", (22, 5)), ("slurm-wlm 24.11.5-4\n", (24, 11))],
)
def test_the_release_is_read_from_what_slurmctld_prints(text: str, version: tuple[int, int]) -> None:
    assert parse_version(text) == version


def test_a_text_without_a_release_is_an_error() -> None:
    with pytest.raises(LabError, match="no Slurm release"):
        parse_version("slurm unknown")


class Marked:
    """A test marked `slurm`."""

    def get_closest_marker(self, name: str) -> str:
        return name


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_without_slurm_its_tests_are_skipped_and_on_ci_fail(
    monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setattr(conftest, "why_not", lambda: "not installed: slurmctld")
    monkeypatch.setenv("CI", ci)

    with pytest.raises(outcome, match="not installed: slurmctld"):
        conftest.pytest_runtest_setup(cast("pytest.Item", Marked()))


@pytest.mark.slurm
def test_a_command_in_a_cluster_of_its_own_has_slurm_and_our_commands_and_leaves_nothing() -> None:
    script = """echo $INTERLEAVE_LAB; said=$INTERLEAVE_LAB/said
        sbatch --wait -Q --interleave-group=rl --gres=gpu:1 -o $said --wrap='
            interleave run printenv INTERLEAVE_GROUP'
        cat $said; sinterleave -n -P -o Group,State; exit 3"""
    outside = {**os.environ, "PYTHONPATH": "deploy", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}

    done = subprocess.run(
        [sys.executable, "-m", "lab", "sh", "-c", script],
        env=outside, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip

    root, *said = done.stdout.splitlines()
    assert (said, done.returncode) == (["rl", "rl|YIELDED"], 3), done.stderr
    assert gone(Path(root))


def test_without_slurm_the_command_for_a_cluster_says_what_is_missing() -> None:
    outside = {**os.environ, "PYTHONPATH": "deploy", "PATH": "/nowhere"}

    done = subprocess.run(
        [sys.executable, "-m", "lab", "true"],
        env=outside, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("lab: ")
    assert len(done.stderr.splitlines()) == 1
