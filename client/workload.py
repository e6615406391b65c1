"""An application's side of the workload channel: it moves its own device state when the node's agent says so.

The stream is WorkloadChannel of the v1alpha1 agent service on the job's own socket. It is opened anew when it
breaks, since the agent may be started again at any time.
"""

from __future__ import annotations

import os
import queue
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import grpc

from slurm_interleave.client.connect import open_channel
from slurm_interleave.client.waiting import say
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2 as v1
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2_grpc as v1_rpc

RANK_KEY = "interleave-rank"
PID_KEY = "interleave-pid"
ARENA_KEY = "interleave-arena-bytes"
SPILLS_KEY = "interleave-spills"
_AGAIN_S = (0.05, 0.1, 0.2, 0.5, 1.0)
_CLOSE_S = 10.0
# No other try would end differently.
_FINAL = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.PERMISSION_DENIED)


class Suspendable(Protocol):
    """What moves the state. Called by one thread, never twice at once; what it raises is the answer.

    One with `spills = True` takes a tag `spill:FOLDER` too, and saves on the disk there instead of in memory.
    """

    @property
    def tags(self) -> Sequence[str]:
        """The regions that a command may name."""

    @property
    def can_discard(self) -> bool:
        """Whether it can go without keeping its state."""

    @property
    def arena_bytes(self) -> int:
        """Host memory that is set aside for state that will be saved; what was used once is kept for ever."""

    def suspend(self, tags: Sequence[str], *, discard: bool) -> None:
        """Take the regions *tags* (none: all) off the devices; again is fine. If it raises, all are there."""

    def resume(self, tags: Sequence[str]) -> None:
        """Bring the regions *tags* (none: all) back; again is fine. If it raises, all stay away."""


@dataclass(frozen=True)
class Rank:
    """Which of the processes of a job on one node this is."""

    rank: int = 0
    ranks: int = 1

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> Rank:
        """Return what torchrun or srun say; rank 0 of 1 where neither does."""
        if "LOCAL_RANK" in environ and "LOCAL_WORLD_SIZE" in environ:
            return cls(int(environ["LOCAL_RANK"]), int(environ["LOCAL_WORLD_SIZE"]))
        tasks = _tasks_of_node(environ.get("SLURM_STEP_TASKS_PER_NODE", ""), environ.get("SLURM_NODEID", "0"))
        rank = int(environ.get("SLURM_LOCALID", "0"))
        return cls(rank, tasks) if rank < tasks else cls()


class Workload:
    """Serves the agent's commands by a thread, until `close`."""

    def __init__(self, address: str, job_id: str, group: str, state: Suspendable, rank: Rank) -> None:
        """*address*: the job's socket, as in INTERLEAVE_SOCKET."""
        self._address = address
        self._register = v1.RegisterWorkload(job_id=job_id, group=group, capabilities=_capabilities(state))
        self._state = state
        self._rank = rank
        self._closed = threading.Event()
        self._call: Any = None
        self._says: queue.SimpleQueue[v1.WorkloadMessage | None] = queue.SimpleQueue()
        self._answering = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name="interleave-workload", daemon=True)
        self._thread.start()

    @classmethod
    def from_env(
        cls, state: Suspendable, rank: Rank | None = None, environ: Mapping[str, str] = os.environ
    ) -> Workload | None:
        """Return the served workload of the job that the environment names; None outside of one."""
        address, job = environ.get("INTERLEAVE_SOCKET", ""), environ.get("INTERLEAVE_JOB_ID", "")
        if not address or not job:
            return None
        return cls(address, job, environ.get("INTERLEAVE_GROUP", ""), state, rank or Rank.from_env(environ))

    def close(self) -> None:
        """Take no more commands; one that is being carried out is finished, and answered."""
        self._closed.set()
        if self._answering.acquire(timeout=_CLOSE_S):
            self._answering.release()
        self._says.put(None)
        self._thread.join(_CLOSE_S)
        if self._call is not None:
            self._call.cancel()

    def _serve(self) -> None:
        failures = 0
        with open_channel(self._address) as channel:
            while not self._closed.is_set():
                error = self._serve_stream(channel)
                if error is not None and error.code() in _FINAL and not self._closed.is_set():
                    say(f"the agent at {self._address} takes no workload channel: {error.details()}")
                    return
                failures = failures + 1 if error is not None else 0
                self._closed.wait(_AGAIN_S[min(failures, len(_AGAIN_S) - 1)])

    def _serve_stream(self, channel: grpc.Channel) -> Any:
        """Serve one stream to its end and return its error, if it had one."""
        says = self._says = queue.SimpleQueue()
        if self._closed.is_set():
            return None
        says.put(v1.WorkloadMessage(register=self._register))
        stub = v1_rpc.SnapshotAgentServiceStub(channel)
        call = self._call = stub.WorkloadChannel(_until_none(says), metadata=self._metadata())
        try:
            for command in call:
                with self._answering:
                    says.put(v1.WorkloadMessage(result=self._carried_out(command)))
        except grpc.RpcError as error:
            return error
        finally:
            says.put(None)
            call.cancel()
        return None

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (
            (RANK_KEY, f"{self._rank.rank}/{self._rank.ranks}"),
            (PID_KEY, str(os.getpid())),
            (ARENA_KEY, str(self._state.arena_bytes)),
            (SPILLS_KEY, str(int(getattr(self._state, "spills", False)))),
        )

    def _carried_out(self, command: v1.AgentCommand) -> v1.CommandResult:
        try:
            if command.WhichOneof("command") == "snapshot":
                discard = command.snapshot.mode == v1.SUSPEND_MODE_DISCARD
                self._state.suspend(list(command.snapshot.tags), discard=discard)
            else:
                self._state.resume(list(command.restore.tags))
        except Exception as error:  # noqa: BLE001 - whatever it is, the agent waits for an answer
            text = f"{type(error).__name__}: {error}"
            return v1.CommandResult(command_id=command.command_id, ok=False, error=text)
        return v1.CommandResult(command_id=command.command_id, ok=True)


def _capabilities(state: Suspendable) -> v1.WorkloadCapabilities:
    modes = [v1.SUSPEND_MODE_OFFLOAD] + [v1.SUSPEND_MODE_DISCARD] * state.can_discard
    return v1.WorkloadCapabilities(
        supported_modes=modes, default_mode=v1.SUSPEND_MODE_OFFLOAD, tags=state.tags
    )


def _until_none(says: queue.SimpleQueue[v1.WorkloadMessage | None]) -> Iterator[v1.WorkloadMessage]:
    while (message := says.get()) is not None:
        yield message


def _tasks_of_node(text: str, node: str) -> int:
    """Return how many tasks the node with this number has, by Slurm's list: 2(x3),1 is 2, 2, 2, 1."""
    counts: list[int] = []
    for tasks, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        counts += [int(tasks)] * int(times or 1)
    number = int(node) if node.isdigit() else 0
    return counts[number] if number < len(counts) else 1
