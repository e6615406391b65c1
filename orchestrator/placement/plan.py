"""Where each waiting job goes. Values in, placements out: no clock, no I/O.

Every device has seats: one in each lane, or as many as there are tokens. A job takes the same lane on the
same device indices of all its nodes. Members of a group with the same role sit on the same devices; a device
belongs to one of them until its last member leaves.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations


@dataclass(frozen=True)
class Node:
    """A node whose agent is connected."""

    name: str
    devices: tuple[int, ...]
    """The indices of its devices."""


@dataclass(frozen=True)
class Lane:
    """One shared GRES."""

    name: str
    seats: int
    """How many jobs it admits to a device: 1 for a lane, the member count for tokens."""


@dataclass(frozen=True)
class Pending:
    """A held job that waits for its place."""

    job_id: str
    group: str
    role: str
    nodes: int
    devices: int
    """On each node."""


@dataclass(frozen=True)
class Placement:
    """Where a job runs: *devices* (indices) in *lane*, the same on each of *nodes*."""

    job_id: str
    group: str
    role: str
    nodes: tuple[str, ...]
    devices: tuple[int, ...]
    lane: str


def plan(
    pending: Iterable[Pending], book: Iterable[Placement], nodes: Sequence[Node], lanes: Sequence[Lane]
) -> list[Placement]:
    """Return the placements of those of *pending* that fit now, first come first served.

    *book* holds the jobs that have their place; they stay. A job goes where its group runs if a seat is free
    there, else onto devices that no group has, on the nodes with the fewest devices in use, else it waits.
    """
    table = _Table(nodes, lanes)
    for placement in book:
        table.seat(placement)
    made: list[Placement] = []
    for job in pending:
        found = None if job.job_id in table.seated else table.join(job) or table.open(job)
        if found:
            table.seat(found)
            made.append(found)
    return made


@dataclass(frozen=True)
class _Profile:
    """What a node offers to one job in one lane, as bit masks of device indices; many nodes share one."""

    usable: int
    own: int
    """Of the usable ones, those where the job's group runs."""
    in_use: int
    """How many devices of the node have an owner."""


class _Table:
    """Who sits where."""

    def __init__(self, nodes: Sequence[Node], lanes: Sequence[Lane]) -> None:
        self._nodes = {node.name: node for node in sorted(nodes, key=lambda node: node.name)}
        self._lanes = lanes
        self._taken: Counter[tuple[str, str, int]] = Counter()
        self._owners: defaultdict[str, dict[int, set[tuple[str, str]]]] = defaultdict(dict)
        self._sets: defaultdict[tuple[str, str], Counter[tuple[tuple[str, ...], tuple[int, ...]]]]
        self._sets = defaultdict(Counter)
        self.seated: set[str] = set()

    def seat(self, placement: Placement) -> None:
        """Note that *placement* is taken."""
        owner = (placement.group, placement.role)
        self.seated.add(placement.job_id)
        self._sets[owner][placement.nodes, placement.devices] += 1
        for node in placement.nodes:
            for device in placement.devices:
                self._taken[placement.lane, node, device] += 1
                self._owners[node].setdefault(device, set()).add(owner)

    def join(self, job: Pending) -> Placement | None:
        """Return a place on a device set of the job's group that has exactly its size, the emptiest first."""
        sets = self._sets[job.group, job.role]
        for nodes, devices in sorted(sets, key=lambda place: (sets[place], place)):
            if (len(nodes), len(devices)) != (job.nodes, job.devices) or not self._all_there(nodes):
                continue
            for lane in self._lanes:
                if all(self._free(lane, node, device) for node in nodes for device in devices):
                    return Placement(job.job_id, job.group, job.role, nodes, devices, lane.name)
        return None

    def open(self, job: Pending) -> Placement | None:
        """Return a place on free devices and those of the job's own group, with the most of its own."""
        best: tuple[tuple[object, ...], Placement] | None = None
        for number, lane in enumerate(self._lanes):
            profiles = self._profiles(job, lane)
            indices = sorted({device for node in self._nodes.values() for device in node.devices})
            for devices in combinations(indices, job.devices):
                chosen = _choose(profiles, sum(1 << device for device in devices), job.nodes)
                if chosen is None:
                    continue
                own, in_use, nodes = chosen
                rank = (-own, in_use, devices, number)
                if best is None or rank < best[0]:
                    best = (rank, Placement(job.job_id, job.group, job.role, nodes, devices, lane.name))
        return best[1] if best else None

    def _profiles(self, job: Pending, lane: Lane) -> dict[_Profile, list[str]]:
        """Return the nodes' names by what they offer."""
        mine = {(job.group, job.role)}
        found: defaultdict[_Profile, list[str]] = defaultdict(list)
        for name, node in self._nodes.items():
            usable = own = 0
            owners = self._owners[name]
            for device in node.devices:
                is_own = owners.get(device) == mine
                if (device not in owners or is_own) and self._free(lane, name, device):
                    usable |= 1 << device
                    own |= is_own << device
            found[_Profile(usable, own, len(owners))].append(name)
        return found

    def _free(self, lane: Lane, node: str, device: int) -> bool:
        return self._taken[lane.name, node, device] < lane.seats

    def _all_there(self, nodes: Iterable[str]) -> bool:
        return all(node in self._nodes for node in nodes)


def _choose(
    profiles: dict[_Profile, list[str]], wanted: int, count: int
) -> tuple[int, int, tuple[str, ...]] | None:
    """Return (own devices met, devices in use, names) of the best *count* nodes that offer *wanted*."""
    own = in_use = 0
    names: list[str] = []
    fitting = [profile for profile in profiles if profile.usable & wanted == wanted]
    for profile in sorted(fitting, key=lambda p: (-(p.own & wanted).bit_count(), p.in_use, profiles[p])):
        taken = profiles[profile][: count - len(names)]
        own += len(taken) * (profile.own & wanted).bit_count()
        in_use += len(taken) * profile.in_use
        names += taken
        if len(names) == count:
            return own, in_use, tuple(sorted(names))
    return None
