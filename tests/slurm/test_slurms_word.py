"""What Slurm says of a job counts for its turns: a real Slurm, with rules of a site."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import Cluster
from tests.slurm.members import eventually, status, submit_member, violations

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

CONFIG = {
    "turns": {"policy": "priority", "yield_grace_s": 300, "force": True},
    "placement": {"requeue_faulted": 1},
    "groups.limited": {"nodes": ["elsewhere"], "devices": [0], "max_hold_s": 1},
}


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

    assert eventually(lambda: known() == wanted)
    site.scancel(a.job_id)
    early.completed()
    late.completed()

    assert late.epochs()[0] < early.epochs()[0]


def test_a_job_whose_saved_state_is_damaged_is_started_again_and_its_devices_are_free(site: Cluster) -> None:
    end = site.out / "end-faulted"
    a = submit_member(site, "faulted", "--turns", "2", "--until", str(end), "--stay")
    a.until("yielding")
    b = submit_member(site, "faulted", "--turns", "1", "--hold", "300")
    b.until("granted")
    assert eventually(lambda: status(site, "faulted")[a.job_id].queue_place > 0)
    end.touch()
    files = site.scratch.sim.glob(f"*/host/{a.job_id}/*")
    buffer = next(path for path in files if path.stat().st_size > 1 << 20)
    with buffer.open("r+b") as file:
        file.seek(1 << 19)
        file.write(b"damaged")

    site.scancel(b.job_id)
    a.until("JobFaulted")
    site.wait(a.job_id, "PENDING")
    c = submit_member(site, "faulted", "--turns", "1")
    c.completed()
    site.begin_soon(a.job_id)
    a.completed()

    assert site.job(a.job_id)["Restarts"] == "1"


def test_the_log_and_the_status_say_that_the_holder_is_suspended(site: Cluster) -> None:
    go = site.out / "go-stalled"
    a = submit_member(site, "stalled", "--turns", "1", "--hold-for", str(go))
    a.until("worked")
    b = submit_member(site, "stalled", "--turns", "1")
    site.wait(b.job_id, "RUNNING")
    site.command("scontrol", "suspend", a.job_id)

    reason = f"holder {a.job_id} is suspended in Slurm"
    assert eventually(lambda: f"1 ahead; {reason}" in site.output(b.job_id))
    assert reason in site.command(str(Path(sys.executable).with_name("interleave")), "status", "stalled")
    assert b.epochs() == []
    go.touch()
    site.command("scontrol", "resume", a.job_id)
    a.completed()
    b.completed()


def test_a_suspended_holder_loses_its_devices_at_its_limit_and_goes_on_later(site: Cluster) -> None:
    go = site.out / "go-limited"
    a = submit_member(site, "limited", "--turns", "2", "--hold-for", str(go))
    a.until("worked")
    site.command("scontrol", "suspend", a.job_id)
    b = submit_member(site, "limited", "--turns", "2")
    b.completed()
    assert a.events()[-1] == "worked"

    go.touch()
    site.command("scontrol", "resume", a.job_id)
    a.completed()
    assert not violations(site)
