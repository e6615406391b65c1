"""The whole: one orchestrator, nodes with agents, jobs with clients, and what goes wrong, from one seed."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import zlib
from collections import Counter, deque
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_interleave.client.core.errors import InterleaveError
from slurm_interleave.client.core.states import SliceState
from slurm_interleave.client.sim.processes import Process as ClientProcess
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.sql.rows import Key
from slurm_interleave.sql.store import Store
from tests.simulation import machines
from tests.simulation.dice import Dice, rules_by
from tests.simulation.disk import Disk, scratch
from tests.simulation.drains import Saving
from tests.simulation.faults import Faults
from tests.simulation.loop import PROCESS, Process, VirtualLoop
from tests.simulation.nodes import Node
from tests.simulation.observer import Observer, Violation
from tests.simulation.quiet import quiet
from tests.simulation.rpc import acquired_by, open_call
from tests.simulation.runs import Run
from tests.simulation.slurm import Slurm
from tests.simulation.wire import Network

HEARD_S = 1.0
SHOWN = 60  # of the last events, where a promise is broken
# For whoever waits once faults have stopped, in virtual seconds: the longest time-outs, one after the other.
PATIENCE_S = 300.0


@dataclass(frozen=True)
class Outcome:
    """What a simulation came to; *digest* is the same for the same seed."""

    events: int
    digest: int
    grants: int
    slices: int
    seconds: float  # virtual
    abandoned: int  # leases whose holder's process was gone
    counts: Counter[str]  # of events, by kind


class World:
    """Everything of one seed. `run` raises `Violation` with the seed and the last events."""

    def __init__(self, seed: int, folder: Path, *, sql: bool = False) -> None:
        self.seed, self.folder = seed, folder
        self.loop = VirtualLoop()
        self.dice = dice = Dice(seed)
        self.numbers = itertools.count(1)
        self.events, self.digest, self.counts = 0, 0, Counter[str]()
        self.last: deque[tuple[Any, ...]] = deque(maxlen=SHOWN)
        self.rules = rules_by(dice)
        self.blind = dice.coin(0.3)
        self.scripts = dice.coin(0.7)  # a job's script is another process than its client
        self.places = dice.coin(0.7)  # the orchestrator places jobs; else Slurm does
        self.groups = ["g", "h"][: dice.number(1, 2) if self.places else 2]
        self.observer = Observer(self.rules.policy == "fifo", self.is_heard, forced=self.rules.force)
        self.net = Network(self.loop, dice, self.happens)
        self.nodes = {
            name: Node(name, folder / name, self.observer, self.rules.co_resident)
            for name in ("n1", "n2", "n3")[: dice.number(1, 3)]
        }
        self.hooks: dict[str, Any] = {}
        self.clients: dict[int, Process] = {}  # by pid
        self.orchestrator: tuple[Process, Any]
        self.embedded = dice.coin(0.6)
        self.loop.latency = lambda: dice.about(0.003)
        self._disk = Disk()
        self._sql = f"sqlite:///{folder}/orchestrator.db" if sql else ""
        self.slurm = Slurm(self)
        self.saving = Saving(self)
        self.turns: deque[tuple[Run, str, int, str]] = deque(maxlen=20)

    # What the parts tell the world.

    def happens(self, *what: Any) -> None:
        """Count an event."""
        self.events += 1
        self.counts[what[0]] += 1
        self.last.append((self.loop.time(), *what))
        self.digest = zlib.crc32(repr((self.loop.time(), what)).encode(), self.digest)

    def open_store(self) -> Any:
        """Return the orchestrator's memory, taken over from the one before."""
        return Store(self._sql) if self._sql else self._disk.open(embedded=self.embedded)

    def crash_at_record(self) -> str:
        """Tell whether the orchestrator dies at this transaction: before or after it counts."""
        self.happens("record")
        if not self.dice.chance(self.dice.crashes_at_record):
            return ""
        when = self.dice.among(["before", "after"])
        self.happens("crash", when)
        return when

    def is_heard(self, key: Key) -> bool:
        """Tell whether the orchestrator has had a call of *key* for some time; others are passed over."""
        run, server, since = self.slurm.runs.get(key.job_id), self.orchestrator[0], self.loop.time() - HEARD_S
        return (
            run is not None
            and not self.orchestrator[1].arbiter.core.state.pauses.is_being_saved(key.job_id)
            and any(
                call.client is run.process
                and call.client.alive
                and call.server is server
                and call.arrived < since
                and not call.up.cut
                and call.status is None  # else its time is up, and the server has seen that too
                and key.group in acquired_by(call)
                for call in self.net.calls
            )
        )

    def locked(self) -> bool:
        """Tell whether another program writes to the database right now."""
        return self.dice.chance(0.005)

    def processes_of(self, jobs: Iterable[str]) -> dict[str, list[int]]:
        """Return what the agent that asks finds in its /proc."""
        asker = PROCESS.get()
        [node] = [node for node in self.nodes.values() if node.agent is asker]
        alive = {job for job, memory in node.memories.items() if memory.alive}
        return {job: [1] if job in alive and self._runs_here(job, node) else [] for job in jobs}

    async def is_over_in_slurm(self, job: str) -> bool:
        """Return what squeue says."""
        await asyncio.sleep(self.dice.about(0.1))
        return self.slurm.is_over(job)

    def entered(self, run: Run, group: str, epoch: int) -> None:
        """A job holds its devices in *group*, and uses them on all their nodes."""
        key = Key(run.job, group)
        self.observer.entered(key, epoch, run.devices(group))
        if run.over:
            self.observer.given_up(run.job)
        if not self.observer.turns[key].lives:
            return
        for name in run.nodes(group):
            self.nodes[name].use(run.job)

    def gave_up(self, run: Run, error: InterleaveError) -> None:
        """A client has got an error that ends its job."""
        self.happens("gave up", run.job, type(error).__name__)
        expected = ("JobFaulted", "JobEnded", "StaleLease")
        if self.dice.calm and not run.over and type(error).__name__ not in expected:
            self.observer.violated(f"job {run.job} gave up in calm times: {error!r}")

    def stale(self, run: Run, epoch: int, error: InterleaveError) -> None:
        """A yield was refused: then the lease has ended before."""
        if epoch not in self.observer.slices:
            self.observer.violated(f"job {run.job}: {error}, but lease {epoch} has no slice")

    def remember_turn(self, run: Run, group: str, epoch: int, call: str) -> None:
        """Keep an old lease, for yields that come too late."""
        self.turns.append((run, group, epoch, call))

    def yield_again(self) -> None:
        """A yield of an old lease comes, of a message or a process that was held up."""
        if not self.turns:
            return
        run, group, epoch, call = self.dice.among(self.turns)
        late = pb.YieldRequest(job_id=run.job, group=group, epoch=epoch, call=call)
        request = late.SerializeToString()
        token = (("interleave-token", run.environment["INTERLEAVE_TOKEN"]),)
        open_call(self.net, self.slurm.process, _YIELD, request, None, token)

    def _runs_here(self, job: str, node: Node) -> bool:
        run = self.slurm.runs.get(job)
        if run is None or run.over or node.name not in run.places:
            return False
        script = self.scripts or node.name != min(run.places)
        return script or (run.process is not None and run.process.alive)

    def client(self, pid: int) -> ClientProcess | None:
        """Return a client that lives."""
        return ClientProcess(pid, 0) if self.clients[pid].alive else None

    def job_of(self, pid: int) -> str:
        """Return the job of the client that has the number *pid*."""
        return self.clients[pid].name.removeprefix("client-")

    def is_alive(self, client: ClientProcess) -> bool:
        """Tell whether it lives."""
        return self.clients[client.pid].alive

    # Its course.

    def run(self, events: int) -> Outcome:
        """Let at least *events* happen, then stop all faults; everybody must get what he waits for."""
        with ExitStack() as stack:
            stack.enter_context(machines.boundary(self))
            stack.enter_context(quiet(self.seed))
            stack.callback(self._end)
            for node in self.nodes.values():
                machines.start_agent(self, node)
            machines.start_orchestrator(self)
            faults = Faults(self)
            faults.begin()
            while self.events < events:
                self._step()
            self.happens("calm")
            faults.stop()
            self._until_all_is_over()
        seen = self.observer
        abandoned = sum(row.state is SliceState.ABANDONED for row in seen.slices.values())
        return Outcome(
            self.events,
            self.digest,
            seen.epoch,
            len(seen.slices),
            self.loop.time(),
            abandoned,
            self.counts,
        )

    def _step(self) -> None:
        if not self.loop.step():
            self.observer.violated("nothing will ever happen again")
        if self.observer.broken or self.loop.failures:
            raise Violation(self._story(self.observer.broken or self.loop.failures[0]))

    def _until_all_is_over(self) -> None:
        """Nobody waits for ever: within bounded time each job has all its turns, or an end."""
        calm = self.loop.time()
        while self.slurm.runs:
            self._step()
            for run in self.slurm.runs.values():
                since = max(run.waits_since or self.loop.time(), calm)
                if self.loop.time() - since > PATIENCE_S:
                    self.observer.violated(f"job {run.job} waits for {self.loop.time() - since:.0f} s")
            if self.loop.time() - calm > 10 * PATIENCE_S:
                self.observer.violated(f"jobs that never end: {list(self.slurm.runs)}")
        tidy = self.loop.time() + PATIENCE_S  # time for what epilogs missed
        while self.loop.time() < tidy:
            self._step()
        self.observer.at_the_end()
        self._raise_if_broken()

    def _raise_if_broken(self) -> None:
        if self.observer.broken:
            raise Violation(self._story(self.observer.broken))

    def _story(self, broken: str) -> str:
        lines = [f"{at:12.4f}  {' '.join(map(str, what))}" for at, *what in self.last]
        command = f"pytest tests/simulation --seed {self.seed}"
        return "\n".join(
            [
                f"seed {self.seed}, event {self.events}: {broken}",
                f"again: {command}",
                f"[{self.rules}]",
                *lines,
            ]
        )

    def _end(self) -> None:
        for process in list(self.loop.processes):
            process.kill()


_YIELD = "/slurm_interleave.v1.Interleave/Yield"


def simulate(seed: int, events: int, *, sql: bool = False) -> Outcome:
    """Run one seed from its beginning to its end. Raises `Violation`."""
    folder = scratch()
    try:
        return World(seed, folder, sql=sql).run(events)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
