"""What Slurm says of a job counts for its turns: a real Slurm, with rules of a site."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab import Cluster
from lab.processes import wait_until
from tests.slurm.members import status, submit_member

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(120)]

CONFIG = {"turns": {"policy": "priority"}}


@pytest.fixture(scope="module")
def site() -> Iterator[Cluster]:
    with Cluster.start(members=3, config=CONFIG) as started:
        yield started


def test_the_job_with_the_higher_priority_in_slurm_goes_first(site: Cluster) -> None:
    a = submit_member(site, "weights", "--turns", "1", "--hold", "300")
    a.until("granted")
    early, late = (submit_member(site, "weights", "--turns", "1") for _ in range(2))
    for member, priority in ((early, 10), (late, 20)):
        site.wait(member.job_id, "RUNNING")
        site.command("scontrol", "update", f"JobId={member.job_id}", f"Priority={priority}")
    wanted = {early.job_id: (True, 10), late.job_id: (True, 20)}

    def known() -> dict[str, tuple[bool, int]]:
        members = status(site, "weights").values()
        return {m.job_id: (m.queue_place > 0, m.priority) for m in members if m.job_id in wanted}

    assert wait_until(lambda: known() == wanted, 20)
    site.scancel(a.job_id)
    early.completed()
    late.completed()

    assert late.epochs()[0] < early.epochs()[0]
