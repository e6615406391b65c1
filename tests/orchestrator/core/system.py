"""The core between clients, nodes and its memory, everything as slow and as broken as the test says."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from slurm_interleave.client.core.errors import InterleaveError, JobFaulted, StaleLease
from slurm_interleave.client.core.states import Context, SliceState
from slurm_interleave.orchestrator.core import commands as cmd
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.core import Core
from slurm_interleave.sql.rows import Key
from tests.orchestrator.core.indexes import expect_true_indexes
from tests.orchestrator.core.memory import Memory
from tests.orchestrator.core.model import ON_DEVICE, Agent, Local


@dataclass
class Job:
    """An attempt of a job: where it runs, and its one client."""

    key: Key
    attempt: str
    places: dict[str, tuple[int, ...]]
    to_start: list[str]
    restarts: int
    uses_devices: bool = True
    killed: bool = False
    call: ev.CallId | None = None  # it waits for an answer
    lost: bool = False  # its call was cut by a restart
    epoch: int = 0  # it holds the devices
    refused: bool = False


@dataclass
class System:
    """All of it, with one clock."""

    agents: dict[str, Agent]
    jobs: dict[str, Job] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)
    timers: list[ev.Wake | ev.HoldCheck | ev.Cancel] = field(default_factory=list)
    now: float = 1.0
    instance: int = 1
    calls: int = 0
    attempts: int = 0
    prologs: int = 0
    look_every: int = 1  # events, from one look at the indexes to the next
    events: int = 0

    def __post_init__(self) -> None:
        self.core = Core(self.memory.remembered(), self.instance)

    def tell(self, event: ev.Event, *, crash: bool = False) -> None:
        """Let the core decide, remember what it says, and do it; *crash*: it dies before it has done it."""
        commands = self.core.handle(event)
        self.memory.record(commands)
        self.check_rows()
        self.events += 1
        if self.events % self.look_every == 0:
            expect_true_indexes(self.core, self.now)
        if not crash:
            self.perform(commands)

    def perform(self, commands: Iterable[cmd.Command]) -> None:
        """Do what the core wants done."""
        for command in commands:
            match command:
                case cmd.Operate() if self.agents[command.node].connected:
                    self.agents[command.node].inbox.append(command)
                case cmd.WakeMe():
                    self.timers.append(command.wake)
                case cmd.Grant(lease=lease, calls=calls):
                    self._granted(Key(lease.job_id, lease.group), lease.epoch, calls)
                case cmd.Refuse(calls=calls):
                    for job in self.jobs.values():
                        if job.call in calls:
                            job.call, job.refused = None, True

    def _granted(self, key: Key, epoch: int, calls: frozenset[ev.CallId]) -> None:
        job = self.jobs[key.job_id]
        if job.call not in calls or job.killed:
            return
        job.call, job.epoch = None, epoch
        for node in job.places:
            local = self.agents[node].locals[key.job_id]
            assert local.context in (Context.NONE, Context.RESIDENT), (
                f"{key} is granted while {local.context}"
            )
            self.agents[node].require_alone(local)
            if job.uses_devices:
                local.context = Context.RESIDENT

    def acquire(self, job: Job) -> None:
        """The job's client asks."""
        self.calls += 1
        job.call, job.lost, job.refused = ev.CallId(self.calls), False, False
        try:
            silent = bool(self.calls % 2)
            self.tell(ev.Acquire(self.now, *job.key, phase="p", call=job.call, silent=silent))
        except InterleaveError as error:
            job.call = None
            job.refused = isinstance(error, JobFaulted)

    def may_acquire(self, job: Job) -> bool:
        """Tell whether the job's client would ask now, and be known by the token of its attempt."""
        free = job.lost or job.call is None
        tokens = self.core.state.tokens
        return free and not job.killed and any(tokens.get(f"{job.attempt}-{node}") for node in job.places)

    def yield_(self, job: Job, *, crash: bool = False) -> None:
        """The job's client yields; after a *crash* it has heard nothing, and will yield again."""
        try:
            self.tell(ev.Yield(self.now, *job.key, epoch=job.epoch), crash=crash)
        except StaleLease:
            assert self.memory.slices[job.epoch].state != "RUNNING"
        if not crash:
            job.epoch = 0

    def cancel(self, job: Job) -> None:
        """The job's client gives up."""
        call, job.call = job.call, None
        if call is not None and not job.lost:
            self.tell(ev.Cancel(self.now, call))

    def clear(self, job: Job, *, keep: bool) -> None:
        """An operator ends the fault of a job."""
        self.calls += 1
        with contextlib.suppress(InterleaveError):
            self.tell(ev.Clear(self.now, *job.key, ev.CallId(self.calls), keep))

    def cancel_moves(self, job: Job) -> None:
        """An operator has what is done to a job's state stopped; its agents may be done already."""
        with contextlib.suppress(InterleaveError):
            self.tell(ev.CancelMoves(self.now, *job.key))

    def cut(self, job: Job) -> None:
        """The network cuts the job's client off, which will ask again."""
        call, job.call = job.call, None
        if call is not None and not job.lost:
            self.tell(ev.Away(self.now, call, cut=True))

    def may_launch(self, job_id: str) -> bool:
        """Tell whether Slurm may start the job: no process of its last run lives, heard of or not."""
        return job_id not in self.jobs or self.jobs[job_id].killed

    def launch(self, job_id: str, group: str, places: dict[str, tuple[int, ...]], *, uses: bool) -> None:
        """Slurm starts a job, whose prologs are still to come."""
        self.attempts += 1
        restarts = self.jobs[job_id].restarts + 1 if job_id in self.jobs else 0
        attempt = f"a{self.attempts}"
        self.jobs[job_id] = Job(Key(job_id, group), attempt, places, sorted(places), restarts, uses)

    def start_part(self, job: Job, node: str) -> None:
        """The prolog of a node."""
        job.to_start.remove(node)
        nodes = tuple(sorted(job.places))
        self.prologs += 1
        local = Local(*job.key, f"{job.attempt}-{node}", job.places[node], nodes)
        local.restarts, local.started = job.restarts, float(self.prologs)
        self.agents[node].start(local, self.now)

    def kill(self, job: Job) -> None:
        """All processes of a job end; what they had on devices is gone; epilogs are still to come."""
        job.killed, job.epoch = True, 0
        job.to_start.clear()
        self.cancel(job)
        for agent in self.agents.values():
            local = agent.locals.get(job.key.job_id)
            if local is not None:
                local.dead = True
                if local.context in ON_DEVICE:
                    local.context, local.fault = Context.NONE, ""

    def end_part(self, job: Job, node: str) -> None:
        """The epilog of a node, or the agent's own look at processes."""
        if job.key.job_id in self.agents[node].locals:
            self.agents[node].end(job.key.job_id, self.now)

    def end_what_is_dead(self) -> None:
        """Run the epilogs that are missing."""
        for agent in self.agents.values():
            for job_id, local in list(agent.locals.items()):
                job = self.jobs[job_id]
                if job.killed or local.attempt != f"{job.attempt}-{agent.node}":
                    agent.end(job_id, self.now)

    def deliver(self, agent: Agent) -> None:
        """Let the next message of an agent arrive."""
        self.tell(agent.outbox.popleft())

    def connect(self, agent: Agent) -> None:
        """An agent reaches the orchestrator."""
        self.tell(agent.hello(self.now))

    def disconnect(self, agent: Agent, *, crash: bool = False) -> None:
        """The link breaks, or the agent is killed."""
        was = agent.connected
        if crash:
            agent.crash()
        agent.lose_link()
        if was:
            self.tell(ev.NodeDown(self.now, agent.node))

    def restart(self) -> None:
        """The orchestrator is killed and starts again: calls and links are cut, timers forgotten."""
        self.instance += 1
        self.timers.clear()
        for agent in self.agents.values():
            agent.lose_link()
        for job in self.jobs.values():
            job.lost = job.call is not None
        self.core = Core(self.memory.remembered(), self.instance)
        commands = self.core.start(self.now)
        self.memory.record(commands)
        self.perform(commands)

    def fire(self, wake: ev.Wake | ev.HoldCheck | ev.Cancel) -> None:
        """A time that the core asked for comes."""
        self.timers.remove(wake)
        self.now = max(self.now, wake.at)
        self.tell(wake)

    def check_rows(self) -> None:
        """At most one holder a device, by the rows; and no run that lives is taken for one that is over."""
        held: dict[tuple[str, int], Key] = {}
        state = self.core.state
        for key in state.leases:
            for device in state.devices(key):
                assert held.setdefault(device, key) == key, f"{device} is held twice"
        for job in self.jobs.values():
            ended = self.memory.slices.get(job.epoch)
            over = ended is not None and ended.state is SliceState.JOB_ENDED
            assert not over, f"lease {job.epoch} has ended with {job.key}, which lives"
