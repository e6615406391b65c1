"""Where each waiting job goes. Values in, placements out: no clock, no I/O.

Every device has seats: one in each lane, or as many as there are tokens. A job takes the same lane on the
same device indices of all its nodes. Members of a group with the same role sit on the same devices; a device
belongs to one of them until its last member leaves.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

from slurm_interleave.orchestrator.pairing.advice import AUTO
from slurm_interleave.orchestrator.placement.auto import Auto
from slurm_interleave.orchestrator.placement.groups import Groups

Owner = tuple[str, str]  # group and role


@dataclass(frozen=True)
class Node:
    """A node whose agent is connected."""

    name: str
    devices: tuple[int, ...]
    """The indices of its devices."""
    host_bytes: int = 0
    """What of its memory saved state may take; 0: not said."""


@dataclass(frozen=True)
class Lane:
    """One shared GRES."""

    name: str
    seats: int
    """How many jobs it admits to a device: 1 for a lane, the member count for tokens."""
    devices: int = 0
    """How many devices of a node a job may have in it; 0: any number."""
    only: frozenset[str] = frozenset()
    """The nodes that have it; empty: all that `lacking` does not name."""
    lacking: frozenset[str] = frozenset()

    def on(self, node: str) -> bool:
        """Tell whether *node* has it."""
        return node in self.only if self.only else node not in self.lacking


@dataclass(frozen=True)
class Pending:
    """A held job that waits for its place."""

    job_id: str
    group: str
    role: str
    nodes: int
    devices: int
    """On each node."""
    account: str = ""
    together: str = ""
    """The heterogeneous job that it is a component of: all of them get their place, or none."""
    avoid: frozenset[str] = frozenset()
    """Nodes that it cannot have."""
    only: frozenset[str] = frozenset()
    """Nodes that it is to have; empty: any."""
    unmet: str = ""
    """What it asks for that no node has."""

    def may_have(self, node: str) -> bool:
        """Tell whether a node is one of those that it can have."""
        return node not in self.avoid and (not self.only or node in self.only)

    @property
    def choosy(self) -> bool:
        """Whether it cannot have each node."""
        return bool(self.avoid or self.only)


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
    pending: Iterable[Pending],
    book: Iterable[Placement],
    nodes: Sequence[Node],
    lanes: Sequence[Lane],
    groups: Groups | None = None,
    closed: Set[str] = frozenset(),
) -> list[Placement]:
    """Return the placements of those of *pending* that fit now, first come first served.

    *book* holds the jobs that have their place; they stay. A job goes where its group runs if a seat is free
    there, else onto devices that no group has, on the nodes with the fewest devices in use, else it waits.
    It waits too where its group's seats are on a node whose agent is away, which is so after each restart,
    though for none of *closed*, where no job can start; and where *groups*, which is told of all who have a
    place, refuses it.
    """
    groups, made = groups or Groups(), list(book)
    table, booked = Seats(made, nodes, lanes, closed), len(made)
    auto = Auto(groups, table.join_now)
    for placement in made:
        groups.enter(placement)
    for jobs in _batches(pending):
        found = _seat(jobs, table, auto)
        if len(found) == len(jobs):
            made += found
        elif found:  # seats are only taken in a table: make it anew
            for placement in found:
                groups.leave(placement)
            table = Seats(made, nodes, lanes, closed)
            auto = Auto(groups, table.join_now)
    return made[booked:]


def _batches(pending: Iterable[Pending]) -> list[list[Pending]]:
    """Return what is placed as one: single jobs, and the components of each heterogeneous job."""
    batches: dict[str, list[Pending]] = {}
    for job in pending:
        batches.setdefault(f"+{job.together}" if job.together else job.job_id, []).append(job)
    return list(batches.values())


def _seat(jobs: Iterable[Pending], table: Seats, auto: Auto) -> list[Placement]:
    """Return the places of *jobs*, up to the first that finds none.

    No two components share a node: while Slurm looks when all can start together, it gives each whole nodes.
    """
    found: list[Placement] = []
    for job in sorted(jobs, key=lambda job: not job.choosy):
        apart = replace(job, avoid=job.avoid.union(*(placement.nodes for placement in found)))
        options = auto.options(apart) if job.group == AUTO else [apart]
        places = (None if auto.groups.refusal(option) else table.find(option) for option in options)
        place = next(filter(None, places), None)
        if place is None:
            break
        table.seat(place)
        auto.groups.enter(place)
        found.append(place)
    return found


class _Profile(NamedTuple):
    """What a node offers to one job in one lane, as bit masks of device indices; many nodes share one."""

    usable: int
    own: int
    """Of the usable ones, those where the job's group runs."""
    in_use: int
    """How many devices of the node have an owner."""


class Seats:
    """Who sits where, as bit masks of device indices by node."""

    def __init__(
        self, taken: Iterable[Placement], nodes: Sequence[Node], lanes: Sequence[Lane], closed: Set[str]
    ) -> None:
        self._lanes, self._closed = lanes, closed
        self._devices = {node.name: _mask(node.devices) for node in sorted(nodes, key=lambda n: n.name)}
        self._indices = sorted({device for node in nodes for device in node.devices})
        self._taken: Counter[tuple[str, str, int]] = Counter()
        self._full: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._owned: defaultdict[str, int] = defaultdict(int)
        self._owner: dict[tuple[str, int], Owner | None] = {}
        self._own: defaultdict[Owner, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._sets: defaultdict[Owner, Counter[tuple[tuple[str, ...], tuple[int, ...]]]]
        self._sets = defaultdict(Counter)
        self._hopeless: set[tuple[int, int]] = set()
        self.seated: set[str] = set()
        for placement in taken:
            self.seat(placement)

    def seat(self, placement: Placement) -> None:
        """Note that *placement* is taken."""
        owner = (placement.group, placement.role)
        self.seated.add(placement.job_id)
        self._sets[owner][placement.nodes, placement.devices] += 1
        for node in placement.nodes:
            lanes = (lane for lane in self._lanes if lane.name == placement.lane and lane.on(node))
            seats = next((lane.seats for lane in lanes), 0)
            for device in placement.devices:
                self._taken[placement.lane, node, device] += 1
                if self._taken[placement.lane, node, device] >= seats:
                    self._full[placement.lane, node] |= 1 << device
                self._give(node, device, owner)

    def _give(self, node: str, device: int, owner: Owner) -> None:
        before = self._owner.setdefault((node, device), owner)
        self._owned[node] |= 1 << device
        if before == owner:
            self._own[owner][node] |= 1 << device
        elif before is not None:  # two owners, as after a change of the configuration: nobody's to fill up
            self._own[before][node] &= ~(1 << device)
            self._owner[node, device] = None

    def find(self, job: Pending) -> Placement | None:
        """Return a place for the job that it can start in now."""
        found = None if job.job_id in self.seated else self.join(job) or self.open(job)
        return found if found and self.present(found.nodes) else None

    def join_now(self, job: Pending) -> Placement | None:
        """Return the same place, if the job can start in it now."""
        place = self.join(job)
        return place if place and self.present(place.nodes) else None

    def present(self, nodes: Iterable[str]) -> bool:
        """Tell whether the agents of all *nodes* are connected."""
        return all(node in self._devices for node in nodes)

    def join(self, job: Pending) -> Placement | None:
        """Return a place on a device set of the job's group that has exactly its size.

        The emptiest comes first; one on a node that is away comes last, but it comes.
        """
        sets = self._sets[job.group, job.role]
        for nodes, devices in sorted(
            sets, key=lambda place: (not self.present(place[0]), sets[place], place)
        ):
            fits = (len(nodes), len(devices)) == (job.nodes, job.devices)
            if not fits or not all(map(job.may_have, nodes)) or not self._closed.isdisjoint(nodes):
                continue
            wanted = _mask(devices)
            for lane in self._lanes_for(job):
                if all(lane.on(node) and not self._full[lane.name, node] & wanted for node in nodes):
                    return Placement(job.job_id, job.group, job.role, nodes, devices, lane.name)
        return None

    def open(self, job: Pending) -> Placement | None:
        """Return a place on free devices and those of the job's own group, with the most of its own."""
        own = self._own[job.group, job.role]
        if not own and (job.nodes, job.devices) in self._hopeless:
            return None
        best: tuple[tuple[object, ...], Placement] | None = None
        for number, lane in enumerate(self._lanes_for(job)):
            profiles = self._profiles(lane, own, job)
            for devices in combinations(self._indices, job.devices):
                chosen = _choose(profiles, _mask(devices), job.nodes)
                if chosen is None:
                    continue
                met, in_use, nodes = chosen
                rank = (-met, in_use, devices, number)
                if best is None or rank < best[0]:
                    best = (rank, Placement(job.job_id, job.group, job.role, nodes, devices, lane.name))
        if best is None and not own and not job.choosy:
            # Nor is there for the next one of this size: seats are only taken here.
            self._hopeless.add((job.nodes, job.devices))
        return best[1] if best else None

    def _lanes_for(self, job: Pending) -> list[Lane]:
        return [lane for lane in self._lanes if not lane.devices or job.devices <= lane.devices]

    def _profiles(self, lane: Lane, own: Mapping[str, int], job: Pending) -> dict[_Profile, list[str]]:
        """Return the names of nodes by what they offer to the group of *job*, which has the devices *own*."""
        found: defaultdict[_Profile, list[str]] = defaultdict(list)
        for name, devices in self._devices.items():
            if not (lane.on(name) and job.may_have(name)):
                continue
            owned, mine = self._owned[name], own.get(name, 0)
            usable = devices & ~self._full[lane.name, name] & (~owned | mine)
            found[_Profile(usable, usable & mine, owned.bit_count())].append(name)
        return found


def _mask(devices: Iterable[int]) -> int:
    return sum(1 << device for device in devices)


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
