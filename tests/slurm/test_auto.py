"""`--interleave-group=auto` on a real Slurm: who is put together is decided by what the jobs did before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab import Cluster
from tests.slurm.members import (
    SubmittedMember,
    eventually,
    never_two_on_a_device,
    slices,
    submit_member,
    violations,
)

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

# Seconds of a turn and between two; of five turns and more something is known.
WORK = {"light": ("0.1", "1.5"), "full": ("2", "0")}


@pytest.fixture
def site() -> Iterator[Cluster]:
    # A busy machine makes jobs of these seconds slower than sharing does.
    bears = {"pairing": {"epsilon": 0.5}}
    with Cluster.start(nodes=("n1",), plain_nodes=(), devices=3, config=bears) as started:
        yield started


def submit(cluster: Cluster, group: str, name: str, *turns: str) -> SubmittedMember:
    hold, off = WORK[name]
    times = (*turns, "--hold", hold, "--off", off)
    return submit_member(cluster, group, *times, options=(f"--job-name={name}",))


def test_jobs_that_fit_by_what_they_did_before_are_paired_and_one_that_would_lose_is_not(
    site: Cluster,
) -> None:
    alone = [submit(site, f"alone-{name}", name, "--turns", "8") for name in WORK]
    for member in alone:
        member.completed()
    site.restart("interleaved")  # learns at its start, and then each five minutes

    # The one that would lose comes first: of groups that are not known to be bad, the first is joined.
    end = site.out / "end"
    turns = ("--turns", "3", "--until", str(end))
    members = [submit(site, "auto", name, *turns) for name in ("full", "light", "light")]
    groups = []
    for member in members:
        assert eventually(lambda m=member: "state=released" in site.job(m.job_id)["AdminComment"])
        groups.append(site.job(member.job_id)["AdminComment"].partition("group=")[2].partition(";")[0])
    end.touch()
    for member in members:
        member.completed()

    full, light, other = members
    assert groups == [f"auto-{full.job_id}", f"auto-{light.job_id}", f"auto-{light.job_id}"]
    pair = slices(site, light, other)
    assert len({device for row in pair for device in row.devices}) == 1
    assert {row.devices[0] for row in pair}.isdisjoint(row.devices[0] for row in slices(site, full))
    assert never_two_on_a_device(pair)
    assert not violations(site)
