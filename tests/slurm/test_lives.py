"""The ways that an interleaved job can live and end on a real Slurm: others go on, nothing of it is left."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from lab import Cluster
from lab.scratch import REPOSITORY
from tests.slurm.members import (
    SCRIPT,
    SubmittedMember,
    eventually,
    kill_all_of,
    never_two_on_a_device,
    slices,
    status,
    submit_member,
    submit_pair,
    violations,
)

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

LONG_HOLD = ("--turns", "1", "--hold", "300")
# Ends in its turn without a word, as after a SIGKILL.
DIES = """
import os, pathlib, sys, time
from slurm_interleave.client import Interleaver
with Interleaver.from_env().turn("last"):
    print("holds", flush=True)
    while not pathlib.Path(sys.argv[1]).exists():
        time.sleep(0.05)
    os._exit(0)
"""
USER_TURNS = """
import os, sys, time
from slurm_interleave.client import Interleaver
while not os.path.exists(sys.argv[1]):
    with Interleaver.from_env().turn(f"u{os.getuid()}"):
        time.sleep(0.2)
"""
Pair = tuple[SubmittedMember, SubmittedMember]


@pytest.fixture(scope="module", autouse=True)
def limited(cluster: Cluster) -> Pair:
    """A holder that Slurm ends at its time limit, and who waits for it; Slurm looks twice a minute."""
    a = submit_member(cluster, "time-limit", *LONG_HOLD, options=("--time=1",))
    a.until("granted")
    return a, submit_member(cluster, "time-limit", "--turns", "1")


@pytest.fixture(autouse=True)
def nothing_is_left(cluster: Cluster) -> Iterator[None]:
    yield
    assert not violations(cluster)


def saved(cluster: Cluster, job_id: str) -> list[Path]:
    """Return the files of the job's saved device state, on all nodes."""
    return [path for path in cluster.scratch.sim.glob(f"*/host/{job_id}/*") if path.is_file()]


def state_of(cluster: Cluster, job_id: str) -> set[str]:
    """Return how the leases of the job ended."""
    return {row.state for row in slices(cluster, SubmittedMember(cluster, job_id, Path()))}


def python_for_all(cluster: Cluster) -> list[str]:
    """Return the command of a Python with our client that every user may run, unlike the tests' own."""
    system = "/usr/bin/python3"
    version = subprocess.run([system, "-V"], capture_output=True, text=True, check=True).stdout.split()[1]
    if version.rpartition(".")[0] != f"{sys.version_info.major}.{sys.version_info.minor}":
        pytest.skip(f"{system} is {version}: the packages of these tests are for another Python")
    site = cluster.out / "site"
    packages = Path(grpc.__file__).parents[1]
    for name in ("grpc", "google"):
        shutil.copytree(packages / name, site / name)
    shutil.copy(packages / "typing_extensions.py", site)
    shutil.copytree(REPOSITORY / "client", site / "slurm_interleave" / "client")
    return ["env", f"PYTHONPATH={site}", system]


def test_a_holder_that_is_cancelled_gives_its_device_to_the_next(cluster: Cluster) -> None:
    a = submit_member(cluster, "cancel-holder", *LONG_HOLD)
    a.until("granted")
    b = submit_member(cluster, "cancel-holder", "--turns", "2")
    cluster.wait(b.job_id, "RUNNING")

    cluster.scancel(a.job_id)
    b.completed()

    assert state_of(cluster, a.job_id) == {"JOB_ENDED"}


def test_a_job_that_is_cancelled_while_its_state_is_saved_leaves_nothing_of_it(cluster: Cluster) -> None:
    go = cluster.out / "go-cancel-saved"
    a = submit_member(cluster, "cancel-saved", "--turns", "2", "--off", "300")
    a.until("yielding")
    b = submit_member(cluster, "cancel-saved", "--turns", "1", "--hold-for", str(go))
    b.until("granted")
    assert saved(cluster, a.job_id)

    cluster.scancel(a.job_id)

    assert eventually(lambda: not saved(cluster, a.job_id))
    assert eventually(lambda: set(status(cluster, "cancel-saved")) == {b.job_id})
    go.touch()
    b.completed()


def test_a_holding_step_that_is_killed_gives_its_device_to_the_next_while_its_job_goes_on(
    cluster: Cluster,
) -> None:
    notes, go = cluster.out / "notes-killed-step", cluster.out / "go-killed-step"
    step = f"srun {sys.executable} {SCRIPT} {notes} --turns 1 --hold 300"
    script = f"{step}; echo step ended; while ! test -e {go}; do sleep 0.1; done"
    a = SubmittedMember(cluster, cluster.sbatch(["sh", "-c", script], group="kill", gres="gpu:1"), notes)
    a.until("granted")
    b = submit_member(cluster, "kill", "--turns", "1")
    assert eventually(lambda: "1 ahead" in cluster.output(b.job_id))

    cluster.command("scancel", "--signal=KILL", f"{a.job_id}.0")
    b.completed()

    assert cluster.state(a.job_id) == "RUNNING"
    assert state_of(cluster, a.job_id) == {"ABANDONED"}
    go.touch()
    cluster.wait(a.job_id)
    assert "step ended" in cluster.output(a.job_id)


def test_a_job_that_never_takes_a_turn_is_in_nobodys_way(cluster: Cluster) -> None:
    silent = cluster.sbatch(["sleep", "300"], group="silent", gres="gpu:1")
    cluster.wait(silent, "RUNNING")

    submit_member(cluster, "silent", "--turns", "3").completed()

    assert state_of(cluster, silent) == set()
    cluster.scancel(silent)


def test_jobs_of_two_users_take_turns_in_one_group(cluster: Cluster) -> None:
    python = python_for_all(cluster)
    end = cluster.out / "end-users"
    command = [*python, "-c", USER_TURNS, str(end)]
    jobs = [cluster.sbatch(command, group="users", gres="gpu:1", user=user) for user in ("nobody", None)]
    members = [SubmittedMember(cluster, job, Path()) for job in jobs]
    assert eventually(lambda: {row.phase for row in slices(cluster, *members)} == {"u65534", "u0"})
    end.touch()
    for job in jobs:
        cluster.wait(job)

    rows = slices(cluster, *members)
    assert len({device for row in rows for device in row.devices}) == 1
    assert never_two_on_a_device(rows)


def test_with_slurmctld_down_the_end_of_a_holder_frees_its_device(cluster: Cluster) -> None:
    go = cluster.out / "go-dies"
    dies = cluster.sbatch([sys.executable, "-c", DIES, str(go)], group="headless-end", gres="gpu:1")
    assert eventually(lambda: "holds" in cluster.output(dies))
    b = submit_member(cluster, "headless-end", "--turns", "1")
    assert eventually(lambda: "1 ahead" in cluster.output(b.job_id))

    cluster.stop("slurmctld")  # no epilog runs now; after a crash Slurm itself may not know these jobs
    try:
        go.touch()
        b.until("finished")
    finally:
        cluster.start_again("slurmctld")
    b.completed()
    assert len(state_of(cluster, dies)) == 1


def test_the_crash_of_a_node_frees_the_devices_of_its_holder(cluster: Cluster) -> None:
    a = submit_member(cluster, "node-crash", *LONG_HOLD, options=("--no-requeue",))
    a.until("granted")
    node = cluster.job(a.job_id)["NodeList"]
    b = submit_member(cluster, "node-crash", "--turns", "1")
    assert eventually(lambda: "1 ahead" in cluster.output(b.job_id))

    cluster.kill9(f"slurmd-{node}")
    try:
        kill_all_of(cluster, a.job_id)
        b.until("finished")
    finally:
        cluster.start_again(f"slurmd-{node}")
    cluster.scancel(a.job_id)
    b.completed()
    up = ("idle", "mixed")
    assert eventually(lambda: cluster.command("sinfo", "-hn", node, "-o%T").strip() in up)


def test_a_reconfiguration_and_a_restart_of_slurmctld_leave_turns_and_places_alone(cluster: Cluster) -> None:
    a, b, end = submit_pair(cluster, "reconfigured")
    cluster.command("scontrol", "reconfigure")
    cluster.restart("slurmctld")
    third = submit_member(cluster, "reconfigured", "--turns", "1")
    third.completed()
    end.touch()
    a.completed()
    b.completed()

    devices = {row.devices[0] for row in slices(cluster, a, b)}
    assert len(devices) == 1
    assert devices.isdisjoint(row.devices[0] for row in slices(cluster, third))


def test_what_a_user_may_change_of_his_held_job_he_changes(cluster: Cluster) -> None:
    cluster.kill9("interleaved")
    try:
        job = cluster.sbatch(["true"], group="changed", gres="gpu:1")
        cluster.command("scontrol", "update", f"JobId={job}", "TimeLimit=7", "JobName=renamed")
    finally:
        cluster.start_again("interleaved")

    cluster.wait(job)
    assert (cluster.job(job)["TimeLimit"], cluster.job(job)["JobName"]) == ("00:07:00", "renamed")


def test_a_holder_at_its_time_limit_gives_its_device_to_the_next(cluster: Cluster, limited: Pair) -> None:
    a, b = limited

    b.completed()

    assert cluster.wait(a.job_id, "TIMEOUT") == "TIMEOUT"
    assert state_of(cluster, a.job_id) == {"JOB_ENDED"}
