"""What `interleave pair` says of live jobs is what placement then does, on a real Slurm."""

from __future__ import annotations

import json
import pwd
import re
from collections.abc import Iterator

import pytest

from lab import Cluster
from lab.scratch import program
from slurm_interleave.client.connect import MUNGE_KEY, Call, ClientConfig, open_channel
from slurm_interleave.client.core.config import load_section
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc
from tests.orchestrator.munged import credential_of
from tests.slurm.members import eventually

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

MIB = 2**20
SLEEP = ["sleep", "600"]


@pytest.fixture(scope="module")
def site() -> Iterator[Cluster]:
    """Two devices of a node that may keep 3 GiB of saved state, and two workloads that are declared."""
    config = {"agent": {"host_memory_gib": 3}, "pairing": {"members": 2}}
    with Cluster.start(nodes=("n1",), plain_nodes=(), config=config) as started:
        turns = {"period_s": 400, "held_s": 100, "snapshot_s": 1, "restore_s": 1}
        sizes = {"small": 512 * MIB, "large": 2048 * MIB}
        profiles = [{**turns, "name": name, "context_bytes": size} for name, size in sizes.items()]
        file = started.root / "declared.json"
        file.write_text(json.dumps({"profiles": profiles}))
        started.command(
            program("interleave"), "profile", "import", str(file), "--config", str(started.config)
        )
        started.restart("interleaved")
        yield started


def submit(site: Cluster, profile: str, hours: int = 0, user: str | None = None) -> str:
    options = [f"--interleave-profile={profile}", f"--time={hours or 'UNLIMITED'}{':00:00' if hours else ''}"]
    return site.sbatch(SLEEP, group="auto", gres="gpu:1", options=[*options, "--output=/dev/null"], user=user)


def why(site: Cluster, *job: str) -> list[str]:
    explain = [f"--explain={one}" for one in job]
    return site.command(program("interleave"), "pair", *explain, "--config", str(site.config)).splitlines()


def group_of(site: Cluster, job_id: str) -> str:
    """Return the group where a job is placed."""
    found = re.search(r";group=([^;]*);.*state=(placed|released)", comment_of(site, job_id))
    return found[1] if found else ""


def reason_of(site: Cluster, job_id: str) -> str:
    found = re.search(r";why=([^;]*);", comment_of(site, job_id))
    return found[1] if found else ""


def comment_of(site: Cluster, job_id: str) -> str:
    """Return the AdminComment, which has blanks; newer releases show the words of the command line too."""
    found = re.search(r"^ *AdminComment=(.*)$", site.command("scontrol", "show", "job", job_id), re.MULTILINE)
    return found[1] if found else ""


def end(site: Cluster, *jobs: str) -> None:
    site.scancel(*jobs)
    for job in jobs:
        site.wait(job, "CANCELLED")


@pytest.fixture(autouse=True)
def nothing_is_left(site: Cluster) -> Iterator[None]:
    yield
    left = site.command("squeue", "--noheader", "--format=%A").split()
    if left:
        end(site, *left)


def test_a_pair_is_refused_for_host_memory_in_the_explanation_as_by_placement(site: Cluster) -> None:
    first, second, third = (submit(site, "large") for _ in range(3))
    assert eventually(lambda: group_of(site, second))
    assert eventually(lambda: reason_of(site, third))
    too_large = "no: saved state on node n1 would take 4.0 GiB of host memory, and there may be 3.0 GiB"

    told = why(site, third)

    for seated in (first, second):
        assert f"group auto-{seated}: {seated} (large) + {third} (large): {too_large}" in told
    assert reason_of(site, third) in told[0]
    assert f"  {third}: no time limit known: counts as longest; saved state 2.0 GiB a node" in told
    assert "  node n1: host memory for saved state 3.0 GiB" in told
    assert any(too_large in line for line in why(site, first))
    assert [group_of(site, job) for job in (first, second, third)] == [f"auto-{first}", f"auto-{second}", ""]

    small = submit(site, "small")
    assert eventually(lambda: group_of(site, small))
    assert group_of(site, small) == f"auto-{first}"
    assert "saves " in why(site, small)[0]


def test_the_order_of_partners_follows_the_hours_left_in_the_explanation_as_in_placement(
    site: Cluster,
) -> None:
    everything = site.sbatch(SLEEP, group="everything", gres="gpu:2")
    site.wait(everything, "RUNNING")
    short, one, other = (submit(site, "small", hours) for hours in (2, 20, 20))
    assert eventually(lambda: f"{other} (small) waits" in "\n".join(why(site)))

    told = why(site, one)

    assert f"all who wait are best off with it in auto-{one}" in told[0]
    assert [line.partition(",")[0] for line in told[1:3]] == [f"with {other}", f"with {short}"]
    for job, hours in ((short, 2), (one, 20)):
        assert f"  {job}: at most {hours} h left; saved state 0.5 GiB a node" in told
    end(site, everything)
    assert eventually(lambda: all(group_of(site, job) for job in (short, one, other)))
    groups = [group_of(site, job) for job in (short, one, other)]
    assert groups == [f"auto-{short}", f"auto-{one}", f"auto-{one}"]

    late = submit(site, "small", 20)
    assert eventually(lambda: group_of(site, late) == f"auto-{short}")
    assert re.match(rf"group auto-{short}: .*: saves 2\.\d device-hours", why(site, late)[0])
    assert re.match(rf"no seat is free on devices as it wants them, .*: auto-{one}$", why(site, late)[1])


def test_a_user_asks_of_his_own_job_and_learns_nothing_of_those_of_others(site: Cluster) -> None:
    theirs = submit(site, "large")
    mine = submit(site, "large", user="nobody")
    assert eventually(lambda: group_of(site, mine))
    client = load_section(ClientConfig, "client", site.config)

    def asked(job_id: str) -> pb.ExplainReply:
        request = pb.ExplainRequest(job_id=job_id)
        uid, payload = pwd.getpwnam("nobody").pw_uid, Call("Pairing/Explain", request).payload()
        who = ((MUNGE_KEY, credential_of(uid, client.munge_socket, payload)),)
        with open_channel(client.orchestrator) as channel:
            return rpc.PairingStub(channel).Explain(request, metadata=who, timeout=60)

    for told in (asked(""), asked(mine)):
        assert told.lines[0].startswith(f"group auto-{mine}: {mine} (large): alone")
        assert not re.search(
            rf"auto-{theirs}\b|\b{theirs} \(|^  {theirs}:", "\n".join(told.lines), re.MULTILINE
        )
        assert told.lines[-1].endswith("groups or jobs that are not yours are left out: 1")
    with pytest.raises(rpc.grpc.RpcError, match="or it is not yours"):
        asked(theirs)
