"""Submits `member.py` to the private cluster and reads what it noted."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from lab import Cluster
from lab.processes import wait_until
from slurm_interleave.client.connect import Call, ClientConfig, credentials, open_channel
from slurm_interleave.client.core.config import load_section
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc

SCRIPT = Path(__file__).with_name("member.py")
_numbers = itertools.count(1)
_BUSY_S = 90.0


def eventually(done: Callable[[], object], poll_s: float = 0.1) -> bool:
    """Wait for what is sure to happen; false after a time that no machine needs, however busy it is."""
    return wait_until(lambda: bool(done()), _BUSY_S, poll_s)


@dataclass
class SubmittedMember:
    """A submitted `member.py`."""

    cluster: Cluster
    job_id: str
    path: Path

    def notes(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        written = self.path.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in written.splitlines()]

    def events(self) -> list[str]:
        return [str(note["event"]) for note in self.notes()]

    def epochs(self) -> list[int]:
        return [int(note["epoch"]) for note in self.notes() if note["event"] == "granted"]

    def holds(self) -> bool:
        """True while the last thing that it noted is a grant."""
        return self.events()[-1:] == ["granted"]

    def until(self, event: str, count: int = 1) -> None:
        """Wait until *event* was noted *count* times."""
        if not eventually(lambda: self.events().count(event) >= count, 0.02):
            record = self.cluster.command("scontrol", "show", "job", self.job_id)
            raise AssertionError(
                f"job {self.job_id} noted {self.events()}, not {count} times {event}; its output:\n"
                f"{self.cluster.output(self.job_id)}\n{record}\n{self.cluster.logs('interleaved')}"
            )

    def completed(self) -> None:
        """Wait for its good end."""
        self.cluster.wait(self.job_id)
        assert self.events()[-1] == "finished"


def submit_member(
    cluster: Cluster, group: str, *arguments: str, options: tuple[str, ...] = (), gres: str = "gpu:1"
) -> SubmittedMember:
    path = cluster.root / "out" / f"notes-{next(_numbers)}.jsonl"
    command = [sys.executable, str(SCRIPT), str(path), *arguments]
    job_id = cluster.sbatch(command, group=group, gres=gres, options=options)
    return SubmittedMember(cluster, job_id, path)


def submit_pair(
    cluster: Cluster, group: str, *arguments: str, options: tuple[str, ...] = ()
) -> tuple[SubmittedMember, SubmittedMember, Path]:
    """Submit two that take turns until a file is there; return them and that file once both have had one.

    So neither ends before the other has come, nor before the test has seen what it wants to see.
    """
    end = cluster.out / f"end-{next(_numbers)}"
    told = ("--until", str(end), *arguments)
    a, b = (submit_member(cluster, group, *told, options=options) for _ in "ab")
    a.until("yielding")
    b.until("yielding")
    return a, b, end


def kill_all_of(cluster: Cluster, *job_ids: str) -> None:
    """End slurmstepd and the processes of jobs as a crash of their node would: none tells of another."""
    wanted = {f"SLURM_JOB_ID={job_id}".encode() for job_id in job_ids}
    lab = f"SLURM_CONF={cluster.env['SLURM_CONF']}".encode()
    members, steps = set[int](), set[int]()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            environ = set((folder / "environ").read_bytes().split(b"\0"))
            if lab in environ and environ & wanted:
                members.add(int(folder.name))
                steps.add(int((folder / "stat").read_text().rpartition(")")[2].split()[1]))
    steps = {pid for pid in steps - members if (Path(f"/proc/{pid}/comm").read_text() == "slurmstepd\n")}
    assert len(steps) == len(job_ids)
    for pid in (*steps, *members):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def slices(cluster: Cluster, *members: SubmittedMember) -> list[pb.Slice]:
    """Return the slices of *members* in the order of their grants."""
    client = load_section(ClientConfig, "client", cluster.config)
    with open_channel(client.orchestrator) as channel:
        request = pb.ListSlicesRequest(job_ids=[member.job_id for member in members])
        who = credentials(Call("Interleave/ListSlices", request), client.auth, client.munge_socket)
        pages = rpc.InterleaveStub(channel).ListSlices(request, metadata=who, timeout=_BUSY_S)
        return sorted((row for page in pages for row in page.slices), key=lambda row: row.epoch)


def status(cluster: Cluster, group: str) -> dict[str, pb.MemberStatus]:
    """Return the members of *group* by their job's id."""
    client, request = load_section(ClientConfig, "client", cluster.config), pb.StatusRequest(group=group)
    with open_channel(client.orchestrator) as channel:
        who = credentials(Call("Interleave/GetStatus", request), client.auth, client.munge_socket)
        try:
            reply = rpc.InterleaveStub(channel).GetStatus(request, metadata=who, timeout=_BUSY_S)
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.NOT_FOUND:
                raise
            return {}  # none of its jobs is registered yet
    return {member.job_id: member for member in reply.groups[0].members}


def violations(cluster: Cluster) -> list[str]:
    """Return what the simulated devices saw of two jobs on one device."""
    files = cluster.scratch.sim.glob("*/violations.jsonl")
    return [line for path in files for line in path.read_text().splitlines()]


def never_two_on_a_device(rows: list[pb.Slice]) -> bool:
    """Tell whether no slice of a device began before the one before it had ended."""
    for device in {device for row in rows for device in row.devices}:
        on_it = [row for row in rows if device in row.devices]
        if any(after.start < before.end for before, after in itertools.pairwise(on_it)):
            return False
    return True


def alarms(cluster: Cluster) -> list[str]:
    """Return what the log says of GRES that the book and Slurm count differently."""
    log = (cluster.layout.log / "interleaved.log").read_text()
    return [line for line in log.splitlines() if "placement.books_" in line]
