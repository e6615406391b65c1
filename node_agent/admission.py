"""Whether a snapshot fits in host memory: decided from numbers, without looking anywhere.

Where the driver's copy of device memory is charged is not documented, so what may be charged to the job must
fit in both places: below every memory limit of the job, and on the node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GIB = 1 << 30
_MARGIN = 0.05  # of a copy, for what comes with it: page tables, the driver's own records
_RESERVE = 0.02  # of the node's memory stays free


@dataclass(frozen=True)
class Limit:
    """A memory limit of a job, in bytes; *reclaimable* of *used* is cache that the kernel would give up."""

    where: str
    limit: int
    used: int
    reclaimable: int

    @property
    def free(self) -> int:
        """Bytes that the job may take still."""
        return self.limit - self.used + self.reclaimable


@dataclass(frozen=True)
class Node:
    """Memory of the node in bytes: all, what is available, and what snapshots under way will take of it."""

    total: int
    available: int
    promised: int = 0


@dataclass(frozen=True)
class Disk:
    """A disk for what does not fit in host memory: as `Node`, in bytes."""

    where: str
    total: int
    free: int
    promised: int = 0


@dataclass(frozen=True)
class Need:
    """What a snapshot takes, in bytes: its saved state, and how much of that is not set aside already."""

    size: int
    fresh: int
    charged_to_job: bool


def room(total: int) -> int:
    """Return what of a node's *total* memory saved state may take, if nothing else were there."""
    return total - int(total * _RESERVE)


def refusal(need: Need, limits: Sequence[Limit], node: Node, cap_bytes: int = 0, saved_bytes: int = 0) -> str:
    """Return why the snapshot does not fit, with the numbers; empty: it does.

    *limits* are those of the job, *cap_bytes* is the site's for all saved state of the node (0: none), of
    which *saved_bytes* are taken.
    """
    if cap_bytes and saved_bytes + need.size > cap_bytes:
        return (
            f"{_gib(need.size)} do not fit in host memory: of host_memory_gib = {cap_bytes / GIB:g} "
            f"for saved state on this node {_gib(saved_bytes)} are taken"
        )
    reserve = int(node.total * _RESERVE)
    left = node.available - node.promised - reserve
    if need.fresh > left:
        promised = f", {_gib(node.promised)} promised to other snapshots" if node.promised else ""
        return (
            f"{_gib(need.fresh)} do not fit in host memory: of the node's {_gib(node.total)} are "
            f"{_gib(node.available)} available{promised}, and {_gib(reserve)} are kept free"
        )
    return _beyond_job(need, limits) if need.charged_to_job else ""


def disk_refusal(size: int, disk: Disk) -> str:
    """Return why *size* bytes do not fit on *disk*, with the numbers; empty: they do."""
    reserve = int(disk.total * _RESERVE)
    if size <= disk.free - disk.promised - reserve:
        return ""
    promised = f", {_gib(disk.promised)} promised to other snapshots" if disk.promised else ""
    return (
        f"nor on disk: of the {_gib(disk.total)} of spill_dir = {disk.where} are {_gib(disk.free)} free"
        f"{promised}, and {_gib(reserve)} are kept free"
    )


def _beyond_job(need: Need, limits: Sequence[Limit]) -> str:
    wanted = int(need.fresh * (1 + _MARGIN))
    tightest = min(limits, key=lambda limit: limit.free, default=None)
    if tightest is None or wanted <= tightest.free:
        return ""
    return (
        f"{_gib(wanted)} do not fit in the job's memory: of its {_gib(tightest.limit)} are "
        f"{_gib(tightest.used)} in use, {_gib(tightest.reclaimable)} of that as cache ({tightest.where}); "
        f"ask for at least {_gib(wanted - tightest.free)} more with --mem"
    )


def _gib(size: int) -> str:
    """Return *size* for people; small ones in MiB, so that no number is 0."""
    if abs(size) < GIB / 10:
        return f"{size / (1 << 20):.1f} MiB"
    return f"{size / GIB:.1f} GiB"
