"""What happens to nodes: they lose power or slurmd, are rebooted, set down or drained by an administrator."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import Cluster
from tests.slurm.members import (
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


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that is there once a slurmd was told to reboot its node; `reboot_node` then does it."""
    return tmp_path_factory.mktemp("reboot") / "asked"


@pytest.fixture(scope="module")
def site(asked: Path) -> Iterator[Cluster]:
    """A cluster of its own, whose nodes stay down when they are set down, and can be rebooted."""
    program = asked.with_name("reboot")
    program.write_text(f"#!/bin/sh\ntouch {asked}\n")
    program.chmod(0o755)
    # A node that is slow to come back is not down for it.
    patient = ("ReturnToService=1", "ResumeTimeout=300")
    with Cluster.start(plain_nodes=(), slurm=(*patient, f"RebootProgram={program}")) as started:
        yield started


@pytest.fixture(autouse=True)
def nothing_is_left(site: Cluster) -> Iterator[None]:
    yield
    site.cancel_all()
    for node in site.layout.nodes:
        assert eventually(lambda node=node: state_of(site, node) == "idle"), state_of(site, node)
    assert not violations(site)


def state_of(cluster: Cluster, node: str) -> str:
    return cluster.command("sinfo", "--noheader", f"--nodes={node}", "--format=%T").strip()


def pair(cluster: Cluster, group: str, *options: str) -> tuple[SubmittedMember, SubmittedMember, str]:
    """Submit one that holds for long, and one that waits for it; return both and their node."""
    a = submit_member(cluster, group, *LONG_HOLD, options=options)
    a.until("granted")
    b = submit_member(cluster, group, "--turns", "1", options=("--requeue", "--open-mode=append"))
    assert eventually(lambda: "1 ahead" in cluster.output(b.job_id))
    return a, b, cluster.job(a.job_id)["NodeList"]


def crash(cluster: Cluster, node: str, *jobs: str) -> None:
    """End all that runs on *node*, which has no disk, as a loss of power would, and what its memory held."""
    cluster.kill9(f"slurmd-{node}")
    cluster.kill9(f"agent-{node}")
    kill_all_of(cluster, *jobs)
    off = time.time()
    root = cluster.root
    for folder in (root / "run" / node, root / "spool" / node, cluster.scratch.sim / node):
        shutil.rmtree(folder)
    # slurmctld tells a boot from a new slurmd by whole seconds: it is later than the node's last answer.
    assert eventually(lambda: time.time() > off + 2)


def boot(cluster: Cluster, node: str) -> None:
    """Start the agent and slurmd of *node* as after a boot: the kernel has a new boot id, slurmd says so."""
    boot_id = cluster.layout.etc / f"boot-{node}"
    boot_id.write_text(f"{secrets.token_hex(16)}\n")
    agent, slurmd = cluster.daemons[f"agent-{node}"], cluster.daemons[f"slurmd-{node}"]
    mount = f'mount --bind {boot_id} /proc/sys/kernel/random/boot_id; exec "$@"'
    agent.argv[:0] = ["unshare", "--mount", "sh", "-ec", mount, "sh"]
    slurmd.argv.append("-b")
    cluster.start_again(agent.name)
    cluster.start_again(slurmd.name)
    slurmd.argv.remove("-b")


def reboot_node(cluster: Cluster, node: str, asked: Path) -> None:
    """Wait until Slurm reboots *node*, and do what its RebootProgram stands for."""
    assert eventually(asked.exists), cluster.command("scontrol", "show", "node", node)
    asked.unlink()
    crash(cluster, node)
    boot(cluster, node)


def test_a_node_that_boots_anew_gives_its_devices_to_those_that_come_after(site: Cluster) -> None:
    a, b, node = pair(site, "rebooted", "--no-requeue")

    crash(site, node, a.job_id, b.job_id)
    boot(site, node)

    assert site.wait(a.job_id, "NODE_FAIL") == "NODE_FAIL"
    assert "event=state.void" in site.logs(f"agent-{node}", 1000)
    assert eventually(lambda: [row.state for row in slices(site, a)] == ["JOB_ENDED"])
    # Not any "down" before that, or Slurm sets it down once more when its slurmd tells of the boot.
    rebooted = "unexpectedly rebooted"
    assert eventually(lambda: rebooted in site.command("scontrol", "show", "node", node))
    site.command("scontrol", "update", f"NodeName={node}", "State=RESUME")
    submit_member(site, "rebooted-later", "--turns", "1", options=(f"--nodelist={node}",)).completed()
    site.begin_soon(b.job_id)
    b.completed()
    assert site.job(b.job_id)["Restarts"] == "1"


def test_turns_go_on_while_slurmd_is_away(site: Cluster) -> None:
    a, b, end = submit_pair(site, "no-slurmd")
    slurmd = f"slurmd-{site.job(a.job_id)['NodeList']}"

    site.kill9(slurmd)
    try:
        before = len(slices(site, a, b))
        assert eventually(lambda: len(slices(site, a, b)) > before + 3)
    finally:
        site.start_again(slurmd)
    end.touch()
    a.completed()
    b.completed()

    assert never_two_on_a_device(slices(site, a, b))


def test_jobs_of_a_node_that_is_set_down_end_and_one_that_is_requeued_goes_elsewhere(site: Cluster) -> None:
    a, b, node = pair(site, "set-down", "--no-requeue")
    other = next(name for name in site.layout.nodes if name != node)

    site.command("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
    try:
        assert site.wait(a.job_id, "NODE_FAIL") == "NODE_FAIL"
        assert eventually(lambda: site.job(b.job_id).get("ReqNodeList") == other)
        assert eventually(lambda: not site.held(b.job_id))
        site.begin_soon(b.job_id)
        b.completed()
    finally:
        site.command("scontrol", "update", f"NodeName={node}", "State=RESUME")

    assert site.job(b.job_id)["NodeList"] == other
    assert [row.state for row in slices(site, a)] == ["JOB_ENDED"]


def test_no_job_is_placed_on_a_node_that_is_drained_and_one_that_waits_there_leaves_it(site: Cluster) -> None:
    running = submit_member(site, "drained", *LONG_HOLD)
    running.until("granted")
    node = site.job(running.job_id)["NodeList"]
    other = next(name for name in site.layout.nodes if name != node)
    later = ("--begin=now+1hour", f"--nodelist={node}")
    waits = submit_member(site, "drained", "--turns", "1", options=later)
    assert eventually(lambda: "state=released" in site.job(waits.job_id)["AdminComment"])

    site.command("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test")
    try:
        assert eventually(lambda: site.job(waits.job_id).get("ReqNodeList") == other)
        late = [submit_member(site, f"drained{n}", "--turns", "1") for n in range(2)]
        for member in late:
            member.completed()
        assert {site.job(member.job_id)["NodeList"] for member in late} == {other}
        assert site.state(running.job_id) == "RUNNING"
        assert running.job_id in status(site, "drained")
    finally:
        site.command("scontrol", "update", f"NodeName={node}", "State=RESUME")


def test_a_node_that_is_to_reboot_lets_its_jobs_end_and_a_pair_that_was_placed_there_goes_elsewhere(
    site: Cluster, asked: Path
) -> None:
    go = site.out / "go-reboot"
    holds = submit_member(site, "reboots", "--turns", "1", "--hold-for", str(go))
    holds.until("granted")
    waits = submit_member(site, "reboots", "--turns", "1")
    assert eventually(lambda: "1 ahead" in site.output(waits.job_id))
    node = site.job(holds.job_id)["NodeList"]
    other = next(name for name in site.layout.nodes if name != node)
    later = ("--begin=now+1hour", f"--nodelist={node}")
    pair = [submit_member(site, "placed", "--turns", "2", options=later) for _ in "ab"]
    for member in pair:
        assert eventually(lambda m=member: "state=released" in site.job(m.job_id)["AdminComment"])

    site.command("scontrol", "reboot", "ASAP", "nextstate=RESUME", node)

    for member in pair:
        assert eventually(lambda m=member: site.job(m.job_id).get("ReqNodeList") == other)
        assert eventually(lambda m=member: not site.held(m.job_id))
    assert not asked.exists()
    go.touch()
    holds.completed()
    waits.completed()
    reboot_node(site, node, asked)
    assert eventually(lambda: state_of(site, node) == "idle"), state_of(site, node)
    submit_member(site, "after-reboot", "--turns", "1", options=(f"--nodelist={node}",)).completed()
    for member in pair:
        site.command("scontrol", "update", f"JobId={member.job_id}", "StartTime=now")
    for member in pair:
        member.completed()

    assert {row.nodes for row in slices(site, *pair)} == {other}
    assert len({device for row in slices(site, *pair) for device in row.devices}) == 1


def test_a_job_for_a_node_that_is_rebooting_starts_there_when_it_is_back(site: Cluster, asked: Path) -> None:
    node = site.layout.nodes[0]
    site.command("scontrol", "reboot", "nextstate=RESUME", node)
    assert eventually(asked.exists)

    early = submit_member(site, "boots", "--turns", "1", options=(f"--nodelist={node}",))
    free = submit_member(site, "elsewhere", "--turns", "1")
    free.completed()
    assert site.held(early.job_id)
    reboot_node(site, node, asked)
    early.completed()

    assert site.job(early.job_id)["NodeList"] == node
    assert site.job(free.job_id)["NodeList"] != node
