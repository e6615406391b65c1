"""The daemons' real code as simulated processes, and what stands between it and the operating system."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from sqlalchemy.util import await_only, greenlet_spawn

from slurm_interleave.client import session
from slurm_interleave.client.core.errors import InterleaveError, Replaced
from slurm_interleave.client.core.hook_server import Peer
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.node_agent import (
    agent,
    attendance,
    drain,
    host_room,
    jobs,
    link,
    processes,
    results,
    sockets,
    watch,
)
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.config import AgentConfig
from slurm_interleave.node_agent.state import State
from slurm_interleave.orchestrator import daemon, door, recorder
from slurm_interleave.orchestrator.config import OrchestratorConfig
from slurm_interleave.orchestrator.daemon import Orchestrator
from slurm_interleave.orchestrator.placement.config import PlacementConfig
from tests.simulation.disk import Watched
from tests.simulation.loop import PROCESS, Process
from tests.simulation.nodes import Node, WorldBackend
from tests.simulation.rpc import Channel, Server

if TYPE_CHECKING:
    from tests.simulation.world import World

DAYS_S = 1.7e9  # virtual time 0, since the epoch
_HOOK_S = 2.0
_ROOT = Peer(1, 0, 0)
StandIn = tuple[Any, str, object]  # whose attribute, its name, and what it is


def start_orchestrator(world: World) -> Process:
    """Start `interleaved`; an older one that still lives keeps its connections, and may write no more."""
    process = Process(world.loop, f"orchestrator-{next(world.numbers)}")

    async def run() -> None:
        stored = world.open_store()
        process.at_end[stored.close] = None
        store: Any = Watched(stored, process, world.observer.committed, world.crash_at_record, world.locked)
        placement = PlacementConfig(enabled=False)
        one = Orchestrator(
            OrchestratorConfig(auth="none"),
            placement,
            world.rules,
            store,
            clock=lambda: DAYS_S + world.loop.time(),
        )
        world.orchestrator = process, one
        world.observer.restarted(one.arbiter.core)
        try:
            await one.run()
        except Replaced:
            process.kill()

    process.spawn(run(), "main")
    return process


def start_agent(world: World, node: Node) -> Process:
    """Start `interleave-agent` on *node*."""
    process = Process(world.loop, f"agent-{node.name}-{next(world.numbers)}")
    process.at_end[node.agent_ends] = None
    node.agent = process
    folder = node.folder
    config = AgentConfig(
        node=node.name,
        run_dir=folder / "run",
        state_dir=folder / "state",
        auth="none",
        operation_timeout_s=20.0,
        watch_s=1.0,  # else an agent that is killed every second never sees what epilogs missed
        image_dir=str(world.folder / "images"),
    )
    backend = WorldBackend(node, world.dice, world.happens, blind=world.blind)

    async def run() -> None:
        state = node.known = State(config.state_dir)
        node.served = Agent(config, SimConfig(directory=folder / "sim"), backend, state)
        await node.served.run()

    process.spawn(run(), "main")
    return process


class Hooks:
    """Stands for `HookServer`: the socket of a daemon that prolog and epilog talk to."""

    world: World

    def __init__(self, path: Path, verbs: Mapping[str, Callable[[dict[str, Any]], Any]], **_who: Any) -> None:
        self._path, self._verbs = path, verbs

    async def __aenter__(self) -> Hooks:
        process = PROCESS.get()
        assert process is not None
        self.world.hooks[str(self._path)] = process, self._verbs
        return self

    async def __aexit__(self, *error: object) -> None:
        """Do nothing: what is dead does not answer."""


async def call_hook(world: World, path: str, verb: str, **request: Any) -> Mapping[str, Any]:
    """Talk to a daemon on the same host. Raises `ConnectionError` if it gives no answer, or refuses."""
    process, verbs = world.hooks.get(path, (None, {}))
    if process is None or not process.alive:
        raise ConnectionError(f"{path}: nobody listens")
    answer: asyncio.Future[Mapping[str, Any]] = world.loop.create_future()

    async def serve() -> None:
        try:
            reply = await verbs[verb](dict(request), _ROOT)
        except InterleaveError as error:
            reply = {"error": str(error)}
        if not answer.done():
            answer.set_result(reply)

    process.spawn(serve(), verb)
    world.happens("hook", process.name, verb, request.get("job"))
    try:
        reply = await asyncio.wait_for(answer, _HOOK_S)
    except asyncio.TimeoutError:
        raise ConnectionError(f"{path}: no answer") from None
    if "error" in reply:
        raise ConnectionError(reply["error"])
    return reply


class _Thread:
    """Stands for `threading.Thread` in a client."""

    def __init__(self, target: Callable[..., object], args: tuple[Any, ...], name: str, **_: bool) -> None:
        self._target, self._args, self._task = target, args, None
        self._name = name

    def start(self) -> None:
        process = PROCESS.get()
        assert process is not None
        self._task: Any = process.spawn(greenlet_spawn(self._target, *self._args), self._name)

    def join(self, timeout: float | None = None) -> None:
        await_only(asyncio.wait([self._task], timeout=timeout))

    def is_alive(self) -> bool:
        return not self._task.done()


class _NoServer:
    async def stop(self, grace: float) -> None:
        """Do nothing."""


async def _no_server(*args: object) -> _NoServer:
    return _NoServer()


async def _has_room(*args: object) -> str:
    return ""


def _sleep(seconds: float) -> None:
    if threading.current_thread() is not threading.main_thread():
        threading.Event().wait()  # a client of another test, whose server is gone, stays out of this world
    await_only(asyncio.sleep(seconds))


def _clock(world: World) -> SimpleNamespace:
    return SimpleNamespace(monotonic=world.loop.time, sleep=_sleep)


def _of_orchestrators(world: World) -> list[StandIn]:
    return [
        (door, "aio", SimpleNamespace(server=lambda **_: Server(world.net))),
        (daemon, "HookServer", Hooks),
        (recorder, "time", _clock(world)),
    ]


def _of_agents(world: World) -> list[StandIn]:
    return [
        (agent, "HookServer", Hooks),
        (agent, "open_aio_channel", lambda _: Channel(world.net)),
        (agent, "time", SimpleNamespace(time=lambda: DAYS_S + world.loop.time())),
        (agent, "version", lambda _: "simulated"),
        (link, "open_aio_channel", lambda _: Channel(world.net)),
        (link.back_offs, "__defaults__", (lambda: world.dice.between(0.0, 1.0),)),
        (sockets, "serve_job", _no_server),
        # This machine's memory is none of the world's.
        (host_room.HostRoom, "refusal", _has_room),
        (host_room.HostRoom, "size", 0),
        (processes, "of_jobs", world.processes_of),
        (attendance, "alive", SimpleNamespace(process=world.client, is_alive=world.is_alive)),
        (attendance, "processes", SimpleNamespace(job_of=world.job_of)),
        (agent.Register, "unplugged", lambda *_: nullcontext()),  # nobody is connected to sockets of jobs
        (drain, "_roots", world.saving.roots),
        (drain, "_send", world.saving.send),
        (drain, "pipes", lambda _: {}),
        (drain, "requeue_in_slurm", world.saving.requeue),
        (drain.Criu, "check", world.saving.check),
        (drain.Criu, "dump", world.saving.dump),
        (drain.Criu, "end", world.saving.end),
        (watch, "is_over_in_slurm", world.is_over_in_slurm),
        (results, "time", _clock(world)),
    ]


def _of_jobs(world: World) -> list[StandIn]:
    """What an agent draws for a job, and what a job's client finds."""
    numbers = itertools.count(1)
    return [
        (jobs, "uuid", SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=f"attempt-{next(numbers)}"))),
        (jobs, "time", SimpleNamespace(time=lambda: DAYS_S + world.loop.time())),
        (jobs, "secrets", SimpleNamespace(token_urlsafe=lambda _: f"token-{next(numbers)}")),
        (session, "uuid", SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=f"call-{next(numbers)}"))),
        (session, "open_channel", lambda _: Channel(world.net)),
        (session, "begun", lambda call: call()),
        (session, "time", _clock(world)),
        (session, "threading", SimpleNamespace(Thread=_Thread, Lock=threading.Lock)),
        (session, "atexit", SimpleNamespace(register=lambda *_: None)),
    ]


@contextmanager
def boundary(world: World) -> Iterator[None]:
    """Put the world in the place of the operating system and of the network, for all processes."""
    Hooks.world = world
    with ExitStack() as stack:
        for place, name, stand_in in (*_of_orchestrators(world), *_of_agents(world), *_of_jobs(world)):
            stack.enter_context(patch.object(place, name, stand_in))
        stack.enter_context(world.loop.running())
        yield
