"""A Slurm, a book and a fleet in memory, which can fail at any step."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from slurm_interleave.client.core.errors import SlurmFailed
from slurm_interleave.orchestrator.placement.plan import Node, Placement
from slurm_interleave.orchestrator.placement.ports import Update
from slurm_interleave.orchestrator.placement.squeue import SlurmJob
from slurm_interleave.orchestrator.placement.traits import Traits

HELD = "interleave:v1;group={group};nodes={nodes};devices={devices};role=;state=held"


class Crash(Exception):
    """The daemon dies here."""


class Steps:
    """Counts the steps that change something; dies after `dies_after` of them."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.dies_after: int | None = None

    def step(self, text: str) -> None:
        if self.dies_after is not None and len(self.done) >= self.dies_after:
            raise Crash(text)
        self.done.append(text)


@dataclass(frozen=True)
class Pin:
    nodes: tuple[str, ...]
    gres: str


class FakeSlurm:
    """Holds, pins, releases and requeues jobs as slurmctld does; a job starts when it is released."""

    def __init__(self, steps: Steps | None = None, nodes: Iterable[str] = ()) -> None:
        self.steps, self.nodes = steps or Steps(), frozenset(nodes)
        self.queue: dict[str, SlurmJob] = {}
        self.pins: dict[str, Pin] = {}
        self.down = self.silent = False
        self.hidden: set[str] = set()
        self.nodes_down: set[str] = set()
        self.other_states: dict[str, str] = {}
        self.asked, self.released = asyncio.Event(), asyncio.Event()
        self.fails: set[str] = set()
        self.writes_gres: frozenset[str] | None = None  # whatever it was told
        self.has: dict[str, Traits] = {}
        self.traits_asked = 0
        self.miscounts: dict[tuple[str, str], int] = {}

    def submit(self, job_id: str, group: str = "demo", nodes: int = 1, devices: int = 1) -> None:
        comment = HELD.format(group=group, nodes=nodes, devices=devices)
        self.queue[job_id] = SlurmJob(
            job_id, frozenset({"PENDING"}), 0, "JobHeldUser", comment, (), max_nodes=nodes
        )

    def submit_array(self, job_id: str, tasks: str, at_once: int = 0, **asked: Any) -> None:
        self.submit(job_id, **asked)
        self.change(job_id, array=job_id, tasks=tasks, tasks_at_once=at_once)

    def submit_parts(self, *parts: tuple[str, str], **asked: Any) -> None:
        """Submit a heterogeneous job; each of *parts* is an id and a group."""
        for job_id, group in parts:
            self.submit(job_id, group, **asked)
            self.change(job_id, heterogeneous=parts[0][0])

    def change(self, job_id: str, **fields: object) -> None:
        self.queue[job_id] = replace(self.queue[job_id], **fields)  # type: ignore[arg-type]

    def finish(self, job_id: str) -> None:
        self.change(job_id, states=frozenset({"COMPLETED"}))

    def put_back(self, job_id: str) -> None:
        """Requeue the job, as its user or the loss of its node does."""
        restarts = self.queue[job_id].restarts + 1
        self.change(job_id, states=frozenset({"PENDING"}), nodes=(), reason="BeginTime", restarts=restarts)

    async def jobs(self) -> list[SlurmJob]:
        self.asked.set()
        if self.down:
            raise SlurmFailed("squeue --json reports: Failed while looking for jobs")
        return [job for job in self.queue.values() if job.job_id not in self.hidden]

    async def runs(self, job_id: str) -> bool:
        if self.silent:
            raise SlurmFailed("scontrol --oneliner show: no answer within 10 s; is slurmctld up?")
        job = self.queue.get(job_id)
        return job is not None and not (job.finished or job.pending)

    async def update(self, updates: Sequence[Update]) -> dict[str, SlurmFailed]:
        failed: dict[str, SlurmFailed] = {}
        for one in updates:
            failed |= self._changed(one.name, partial(self._update, one))
        return failed

    async def release(self, names: Sequence[str]) -> dict[str, SlurmFailed]:
        failed: dict[str, SlurmFailed] = {}
        for name in names:
            failed |= self._changed(name, self._release)
        return failed

    def _changed(self, name: str, change: Callable[[str], None]) -> dict[str, SlurmFailed]:
        try:
            change(self._find(name))
        except SlurmFailed as error:
            return {name: error}
        return {}

    def _update(self, update: Update, job_id: str) -> None:
        self.steps.step(f"{'pin' if update.nodes else 'note'} {job_id}")
        self.change(job_id, admin_comment=update.admin_comment)
        if update.nodes:
            self.pins[job_id] = Pin(update.nodes, update.gres)
            written = self.writes_gres or frozenset(update.gres.split(","))
            self.change(job_id, gres=written, max_nodes=update.count or self.queue[job_id].max_nodes)
            if update.name.endswith("+0"):
                self.change(job_id, pinned=None, excluded=tuple(sorted(self.nodes.difference(update.nodes))))
            else:
                self.change(job_id, pinned=update.nodes)

    async def unpin(self, name: str) -> None:
        job_id = self._find(name)
        self.steps.step(f"unpin {job_id}")
        self.pins[job_id] = Pin((), self.pins[job_id].gres)
        self.change(job_id, **({"excluded": ()} if name.endswith("+0") else {"pinned": ()}))

    async def node_states(self) -> dict[str, str]:
        return dict.fromkeys(self.nodes, "idle") | dict.fromkeys(self.nodes_down, "down*") | self.other_states

    async def traits(self) -> dict[str, Traits]:
        self.traits_asked += 1
        return self.has

    async def used(self) -> dict[tuple[str, str], int]:
        started = [job_id for job_id, job in self.queue.items() if job.started and job_id in self.pins]
        found: Counter[tuple[str, str]] = Counter()
        for job_id in started:
            parts = self.pins[job_id].gres.split(",")
            found.update((node, part[:-2]) for node in self.pins[job_id].nodes for part in parts)
        return {**found, **self.miscounts}

    def _release(self, job_id: str) -> None:
        self.steps.step(f"release {job_id}")
        self.released.set()
        self.change(
            job_id,
            states=frozenset({"RUNNING"}),
            priority=1,
            reason="None",
            nodes=self.pins[job_id].nodes,
        )

    async def requeue(self, name: str) -> None:
        job_id = self._find(name)
        self.steps.step(f"requeue {job_id}")
        self.put_back(job_id)

    async def hold(self, name: str) -> None:
        job_id = self._find(name)
        self.steps.step(f"hold {job_id}")
        self.change(job_id, priority=0, reason="JobHeldAdmin")

    def _find(self, name: str) -> str:
        """Return the id of the record that scontrol would change; a task of an array becomes a job here."""
        found = [job.job_id for job in self.queue.values() if job.name == name]
        array, _, task = name.partition("_")
        left = self.queue[array].tasks.split(",") if task and array in self.queue else []
        if found:
            name = found[0]
        elif task in left:
            left.remove(task)
            name = str(max(map(int, self.queue)) + 1)
            self.queue[name] = replace(self.queue[array], job_id=name, task=int(task), tasks="")
            if left[1:]:
                self.change(array, tasks=",".join(left))
            else:  # the last one has the record to itself
                self.change(array, task=int(left[0]), tasks="")
        if name in self.fails or name not in self.queue:
            raise SlurmFailed(f"scontrol update JobId={name}: exit code 1: Invalid job id specified")
        return name


class FakeBook:
    def __init__(self, steps: Steps | None = None) -> None:
        self.steps = steps or Steps()
        self.kept: dict[str, Placement] = {}

    async def placements(self) -> list[Placement]:
        return list(self.kept.values())

    async def record(self, placement: Placement) -> None:
        self.steps.step(f"record {placement.job_id}")
        self.kept[placement.job_id] = placement

    async def drop(self, job_id: str) -> None:
        self.steps.step(f"drop {job_id}")
        self.kept.pop(job_id, None)


class FakeFleet:
    def __init__(self, *nodes: Node, steps: Steps | None = None) -> None:
        self.steps = steps or Steps()
        self.connected = list(nodes)
        self.reserved: dict[str, Placement] = {}

    def nodes(self) -> list[Node]:
        return self.connected

    def reserve(self, placement: Placement) -> None:
        self.steps.step(f"reserve {placement.job_id}")
        self.reserved[placement.job_id] = placement

    def forget(self, job_id: str) -> None:
        self.steps.step(f"forget {job_id}")
        self.reserved.pop(job_id, None)


class FakeMembers:
    """Remembers what was last said of each job."""

    def __init__(self) -> None:
        self.known: dict[str, SlurmJob] = {}
        self.faults: dict[str, str] = {}

    def listed(self, _queue: Sequence[SlurmJob]) -> list[str]:
        return []

    def answered(self, job_id: str, _runs: bool) -> None:
        raise AssertionError(f"nobody asked for {job_id}")

    def heard(self, jobs: Sequence[SlurmJob]) -> None:
        self.known = {job.job_id: job for job in jobs}

    def fault(self, job_id: str) -> str:
        return self.faults.get(job_id, "")
