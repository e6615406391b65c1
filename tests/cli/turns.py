"""Two jobs that take turns, as the orchestrator would record them: what the tests here show and draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slurm_interleave.client.timeline import Work
from slurm_interleave.client.wire import interleave_v1_pb2 as pb

BEGAN = 1_750_000_000.0
PHASES = (("rollout", 1.6), ("train", 0.8))
OFF_DEVICE_S = 0.9  # rewards on the CPU, after each rollout
SNAPSHOT_S, RESTORE_S, HANDOVER_S = 0.09, 0.07, 0.004


@dataclass
class Member:
    """A job on its way through its phases."""

    job_id: str
    name: str
    ready: float
    turn: int = 0


def two_jobs(rounds: int = 2) -> tuple[list[pb.Slice], list[Work]]:
    """Return the slices and the work of two jobs."""
    return take_turns([Member("17", "grpo-a", BEGAN), Member("18", "grpo-b", BEGAN + 0.4)], rounds)


def take_turns(
    members: Sequence[Member], rounds: int, devices: Sequence[str] = ("n1/0", "n1/1")
) -> tuple[list[pb.Slice], list[Work]]:
    """Return the slices and the work of *members* that pass through all phases *rounds* times."""
    free, resident = BEGAN, ""
    slices: list[pb.Slice] = []
    work: list[Work] = []
    waiting = list(members)
    while waiting:
        member = min(waiting, key=lambda m: m.ready)
        item = _turn(member, free, resident, devices, epoch=len(slices) + 1)
        slices.append(item)
        work += [
            Work(item.start + 0.02, item.end - 0.05, item.job_id, item.phase, device.rpartition("/")[2])
            for device in devices
        ]
        free, resident = item.end, item.job_id
        member.ready = item.end + (OFF_DEVICE_S if item.phase == "rollout" else 0.05)
        member.turn += 1
        waiting = [m for m in waiting if m.turn < rounds * len(PHASES)]
    return slices, work


def _turn(member: Member, free: float, resident: str, devices: Sequence[str], epoch: int) -> pb.Slice:
    phase, length = PHASES[member.turn % len(PHASES)]
    switched = bool(resident) and resident != member.job_id
    snapshot, restore = (SNAPSHOT_S, RESTORE_S if member.turn else 0.0) if switched else (0.0, 0.0)
    switch = snapshot + restore + HANDOVER_S if switched else 0.0
    start = max(free, member.ready) + switch
    return pb.Slice(
        job_id=member.job_id,
        job_name=member.name,
        user="alice",
        account="lab",
        partition="interleave",
        group="demo",
        phase=phase,
        backend="sim",
        nodes=",".join(dict.fromkeys(device.partition("/")[0] for device in devices)),
        devices=devices,
        state="YIELDED",
        epoch=epoch,
        requested=member.ready,
        start=start,
        end=start + length,
        switched=switched,
        switch_s=switch,
        snapshot_s=snapshot,
        restore_s=restore,
        switch_bytes=int(switched) * 48 * 2**20,
    )
