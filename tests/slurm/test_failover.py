"""The backup controller of a Slurm takes over: turns go on, and new jobs get their devices through it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab import Cluster
from lab.processes import Daemon
from tests.slurm.members import (
    eventually,
    never_two_on_a_device,
    slices,
    submit_member,
    submit_pair,
    violations,
)

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

BACKUP = "slurmctld-backup"
TWO = ("SlurmctldHost=labtwo(127.0.0.2)", "CommunicationParameters=NoCtldInAddrAny")


@pytest.fixture
def doubled() -> Iterator[Cluster]:
    """A cluster with a backup controller, which runs as on a host of its own."""
    with Cluster.start(nodes=("n1",), plain_nodes=(), slurm=TWO) as cluster:
        cluster.launch([backup(cluster)])
        assert eventually(lambda: cluster.command("scontrol", "ping").count("is UP") == 2)
        yield cluster


def backup(cluster: Cluster) -> Daemon:
    etc, logs = cluster.layout.etc, cluster.layout.log
    (etc / "hosts").write_text("127.0.0.1 localhost\n127.0.0.2 labtwo\n")
    text = (etc / "slurm.conf").read_text()
    own = text.replace("/slurmctld.pid", "/backup.pid").replace("/slurmctld.log", "/backup.log")
    (etc / "backup.conf").write_text(own)
    host = f"hostname labtwo; mount --bind {etc}/hosts /etc/hosts; exec slurmctld -D -f {etc}/backup.conf"
    argv = ["unshare", "--uts", "--mount", "sh", "-ec", host]
    log = logs / "backup.log"
    return Daemon(
        BACKUP,
        argv,
        logs / "backup.out",
        cluster.env,
        lambda: log.exists() and "background" in log.read_text(),
        [log],
    )


def test_when_the_backup_controller_takes_over_turns_go_on_and_new_jobs_are_placed(doubled: Cluster) -> None:
    a, b, end = submit_pair(doubled, "failover")

    doubled.stop("slurmctld")  # after a crash Slurm itself may not know jobs of the last seconds
    doubled.command("scontrol", "takeover")
    had = len(a.epochs())
    a.until("granted", had + 2)
    end.touch()
    a.completed()
    b.completed()
    late = submit_member(doubled, "failover", "--turns", "1")
    late.completed()

    checks = 2  # each ends with a look at its state, in a turn that it does not note
    assert len(slices(doubled, a, b)) == len(a.epochs()) + len(b.epochs()) + checks
    assert never_two_on_a_device(slices(doubled, a, b, late))
    assert not violations(doubled)
