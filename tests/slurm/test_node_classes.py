"""A cluster whose nodes are shared in two ways."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab import Cluster
from tests.slurm.members import eventually, never_two_on_a_device, slices, submit_pair, violations

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def mixed() -> Iterator[Cluster]:
    with Cluster.start(devices=1, counted=("n2",)) as started:
        yield started


def test_as_many_jobs_share_a_device_as_the_class_of_its_node_says(mixed: Cluster) -> None:
    go = mixed.out / "go"
    told = f"echo $SLURMD_NODENAME; while ! test -e {go}; do sleep 0.1; done"
    jobs = [mixed.sbatch(["sh", "-c", told], group=f"on-{node}", gres="gpu:1", options=[f"--nodelist={node}"])
            for node in ("n1", "n2") for _ in range(4)]  # fmt: skip

    assert eventually(lambda: sum(mixed.state(job) == "RUNNING" for job in jobs) == 5), mixed.logs(
        "interleaved"
    )
    running = [job for job in jobs if mixed.state(job) == "RUNNING"]
    held = [job for job in jobs if mixed.held(job)]
    go.touch()
    for job in jobs:
        mixed.wait(job)

    assert [mixed.output(job).split() for job in running] == [["n1"]] * 2 + [["n2"]] * 3
    assert len(held) == 3
    assert "placement.books_differ" not in mixed.logs("interleaved", 10000)


def test_members_take_turns_in_either_class(mixed: Cluster) -> None:
    pairs = [submit_pair(mixed, f"turns-{node}", options=(f"--nodelist={node}",)) for node in ("n1", "n2")]
    for a, b, end in pairs:
        end.touch()
        a.completed()
        b.completed()

    for a, b, _ in pairs:
        rows = slices(mixed, a, b)
        assert len({device for row in rows for device in row.devices}) == 1
        assert never_two_on_a_device(rows)
    assert not violations(mixed)
