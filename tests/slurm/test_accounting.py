"""What jobs had of their turns stands in Slurm's own accounting, for plain sacct."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab import Cluster, accounting, slurm_conf
from lab import cluster as lab_cluster
from lab.databases import MariaDB, serving
from tests.slurm.members import eventually, slices, submit_member

pytestmark = [pytest.mark.slurm, pytest.mark.mariadb, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    missing = lab_cluster.why_not() or accounting.why_not()
    if missing:
        pytest.skip(missing)
    with serving("mariadb", durable=False) as database:
        assert isinstance(database, MariaDB)
        lanes = slurm_conf.slurm_version() >= slurm_conf.LANES_SINCE
        more = [f"AccountingStorageTRES={'gres/ilva,gres/ilvb' if lanes else 'gres/ilv'}"]
        with Cluster.start(nodes=["n1"], plain_nodes=[], accounting=database, slurm=more) as running:
            yield running


def admin_comment(cluster: Cluster, job_id: str) -> dict[str, str]:
    """Return what sacct shows, once it says that the job is over."""
    said = ""

    def ended() -> bool:
        nonlocal said
        said = cluster.command("sacct", "-nPX", "-j", job_id, "-o", "AdminComment").strip()
        return ";state=ended;" in said

    assert eventually(ended), said
    prefix, _, fields = said.partition(";")
    assert prefix == "interleave:v1"
    return dict(field.partition("=")[::2] for field in fields.split(";"))


def test_sacct_shows_what_each_job_had_of_its_turns(cluster: Cluster) -> None:
    members = [submit_member(cluster, "pair", "--turns", "3") for _ in range(2)]
    for member in members:
        member.completed()

    for member in members:
        said, rows = admin_comment(cluster, member.job_id), slices(cluster, member)
        assert (said["group"], said["nodes"], said["devices"], said["state"]) == ("pair", "1", "1", "ended")
        assert int(said["turns"]) == len(rows)
        assert int(said["switches"]) == sum(row.switched for row in rows)
        assert float(said["held"]) == pytest.approx(float(said["device"]))
        assert float(said["held"]) > 0


def test_who_shares_a_device_is_billed_for_his_share(cluster: Cluster) -> None:
    names = cluster.layout.gres
    weights = ",".join(f"GRES/{name}={100 / cluster.layout.members:g}" for name in names)
    cluster.command("scontrol", "update", "PartitionName=interleave", f"TRESBillingWeights={weights}")
    member = submit_member(cluster, "bill", "--turns", "1", gres="gpu:2")
    member.completed()
    admin_comment(cluster, member.job_id)

    tres = cluster.command("sacct", "-nPX", "-j", member.job_id, "-o", "AllocTRES").strip().split(",")

    assert "billing=100" in tres  # two devices, each by half
    assert any(one.partition("=")[::2] == (f"gres/{name}", "2") for one in tres for name in names)


def test_a_job_that_is_cancelled_in_its_turn_is_accounted_for(cluster: Cluster) -> None:
    member = submit_member(cluster, "gone", "--turns", "1", "--hold", "300")
    member.until("granted")

    cluster.command("scancel", member.job_id)

    said = admin_comment(cluster, member.job_id)
    assert (said["group"], said["turns"]) == ("gone", "1")


def test_what_happens_while_slurmdbd_is_away_is_written_when_it_is_back(cluster: Cluster) -> None:
    go = cluster.out / "go-away"
    member = submit_member(cluster, "away", "--turns", "1", "--hold-for", str(go))
    member.until("granted")
    cluster.kill9("slurmdbd")
    go.touch()
    member.completed()

    assert eventually(lambda: "accounting.failed" in cluster.logs("interleaved", 10000))
    cluster.start_again("slurmdbd")

    assert int(admin_comment(cluster, member.job_id)["turns"]) >= 1
