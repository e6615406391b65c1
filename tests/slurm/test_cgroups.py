"""Interleaved jobs where Slurm keeps each to its devices and its memory (cgroup v1)."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import Cluster
from lab.processes import wait_until
from tests.slurm import conftest
from tests.slurm.members import SubmittedMember, eventually, slices, submit_member, submit_pair, violations

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

APP = Path(__file__).with_name("app_member.py")
GREEDY = """
from slurm_interleave.client import Interleaver
with Interleaver.from_env().turn("greedy"):
    print("holds", flush=True)
    kept = bytearray(1)
    while True:
        kept += b"x" * (16 << 20)
"""


def test_each_of_two_jobs_on_one_device_opens_that_device_alone(
    fenced: Cluster, piece: Callable[[str, str], None]
) -> None:
    (node,) = fenced.layout.nodes
    devices = [str(fenced.layout.device(node, index)) for index in range(2)]
    # A device without a driver: what may be opened is missing, what may not is forbidden.
    tries = "; ".join(f"(exec 3<{device}) 2>&1" for device in devices)
    go = fenced.out / "go-fence"
    script = f"{tries}; while ! test -e {go}; do sleep 0.1; done"
    jobs = [fenced.sbatch(["sh", "-c", script], group="fence", gres="gpu:1") for _ in "ab"]
    for job in jobs:
        fenced.wait(job, "RUNNING")
    go.touch()
    for job in jobs:
        fenced.wait(job)

    said = [fenced.output(job).splitlines() for job in jobs]
    forbidden = [["Operation not permitted" in line for line in lines] for lines in said]
    fences = fenced.layout.mode == "lane"
    piece("`ConstrainDevices` keeps a job to the devices of its lane", "yes" if fences else "no lanes")
    assert forbidden == ([[False, True]] * 2 if fences else [[False, False]] * 2)


def test_jobs_with_little_memory_take_turns(fenced: Cluster) -> None:
    # At most two copies of their state, while they make it, and the program.
    a, b, end = submit_pair(fenced, "little", options=("--mem=450",))
    assert eventually(lambda: sum(row.switched for row in slices(fenced, a, b)) >= 3)
    end.touch()
    a.completed()
    b.completed()

    assert not violations(fenced)


def submit_app(
    cluster: Cluster, group: str, memory_mib: int, *arguments: str
) -> tuple[SubmittedMember, Path]:
    """Submit `app_member.py`; it goes on after its turn when the file is there."""
    notes, go = cluster.out / f"notes-{group}", cluster.out / f"go-{group}"
    command = [sys.executable, str(APP), str(notes), str(go), *arguments]
    options = [f"--mem={memory_mib}", "--interleave-backend=app_channel", "--no-requeue"]
    job = cluster.sbatch(command, group=group, gres="gpu:1", options=options)
    return SubmittedMember(cluster, job, notes), go


def test_a_job_with_room_in_its_memory_keeps_its_state_there_while_another_one_works(fenced: Cluster) -> None:
    a, go = submit_app(fenced, "room", 450, "--again")
    a.until("yielded")
    b = submit_member(fenced, "room", "--turns", "1", options=("--mem=450",))
    b.completed()
    go.touch()
    a.completed()

    assert a.notes()[-2]["restored"]
    assert not violations(fenced)


@pytest.fixture
def tight(cgroups: None) -> Iterator[Cluster]:
    """A cluster whose devices nobody has used: their memory is charged to who touches it first, for good."""
    with conftest.fenced_cluster("t") as started:
        yield started


def test_a_job_without_room_for_its_state_is_refused_with_the_numbers_and_runs_on(
    tight: Cluster,
) -> None:
    a, go = submit_app(tight, "full", 300)
    a.until("yielded")
    b = submit_member(tight, "full", "--turns", "1", options=("--mem=450",))

    def refusal() -> str:
        lines = tight.logs("interleaved", 1000).splitlines()
        return next((line for line in lines if "switch.failed" in line and f"job {a.job_id} of" in line), "")

    assert wait_until(lambda: bool(refusal()), 30), tight.logs("interleaved")
    numbers = (
        r"0\.2 GiB do not fit in the job's memory: of its 0\.3 GiB are .* ask for at least .* more with --mem"
    )
    assert re.search(numbers, refusal())
    assert tight.state(a.job_id) == "RUNNING"
    go.touch()
    a.completed()
    b.completed()
    assert not violations(tight)


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_without_cgroups_these_tests_are_skipped_and_on_ci_fail(
    monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setattr(conftest, "cgroups_missing", lambda: "no controller: memory")
    monkeypatch.setenv("CI", ci)

    with pytest.raises(outcome, match="no controller: memory"):
        conftest.need_cgroups()


def test_a_holder_that_is_killed_for_its_memory_gives_its_device_to_the_next(fenced: Cluster) -> None:
    greedy = fenced.sbatch(
        [sys.executable, "-c", GREEDY], group="greedy", gres="gpu:1", options=["--mem=200", "--no-requeue"]
    )
    fenced.wait(greedy, "RUNNING")
    other = submit_member(fenced, "greedy", "--turns", "1", options=("--mem=450",))

    other.completed()

    assert "holds" in fenced.output(greedy)
    assert fenced.wait(greedy, "OUT_OF_MEMORY", "FAILED") in {"OUT_OF_MEMORY", "FAILED"}
