"""The workload channels: streams on which applications take commands to move their own device state.

By the wire contract a job has one channel, and a newer one replaces it. A job whose ranks hold state of their
own opens one a rank, side by side: `interleave-rank: 3/8` in a stream's metadata makes it the one of rank 3.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from functools import partial

from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.client.core.names import excerpt
from slurm_interleave.client.core.values import PID_MAX, REASON_MAX, SIZE_MAX, parse_number
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2 as v1
from slurm_interleave.client.workload import ARENA_KEY, PID_KEY, RANK_KEY, SPILLS_KEY
from slurm_interleave.node_agent.waits import CANCELLED, Limit, Stop

_RANK = re.compile(r"(\d{1,4})/(\d{1,4})", re.ASCII)
_RANKS_MAX = 1024  # of a job on one node


@dataclass(frozen=True)
class Speaker:
    """Who is at the other end: rank *rank* of the *ranks* of its job on this node."""

    rank: int = 0
    ranks: int = 1
    pid: int = 0  # 0: not told
    # Host memory that it has set aside for saved state and reuses, in bytes; None: it does not.
    arena_bytes: int | None = None
    spills: bool = False  # it can save on disk, see `Suspendable`

    @classmethod
    def parse(cls, metadata: Mapping[str, str | bytes]) -> Speaker:
        """Return who opened a stream with this metadata. Raises `BadArgument`."""
        text = str(metadata.get(RANK_KEY, "0/1"))
        found = _RANK.fullmatch(text)
        if found is None or not int(found[1]) < int(found[2]) <= _RANKS_MAX:
            what = f"is not a rank and the number of ranks, {_RANKS_MAX} at most, as in 3/8"
            raise BadArgument(f"{RANK_KEY}: {excerpt(text)} {what}")
        arena = _number(metadata, ARENA_KEY, SIZE_MAX) if ARENA_KEY in metadata else None
        spills = _number(metadata, SPILLS_KEY, 1) > 0
        return cls(int(found[1]), int(found[2]), _number(metadata, PID_KEY, PID_MAX), arena, spills)


@dataclass(frozen=True)
class Answer:
    """How a command ended, as the application says; *error* is empty where it went well."""

    error: str = ""
    silent: bool = False  # it did not say: the command may be carried out still


class Channel:
    """One connected application: what it can do, and the commands that it has not answered yet."""

    def __init__(self, capabilities: v1.WorkloadCapabilities, speaker: Speaker | None = None) -> None:
        """Begin with what the application said of itself."""
        self.capabilities = capabilities
        self.speaker = speaker or Speaker()
        self._commands: asyncio.Queue[v1.AgentCommand] = asyncio.Queue()
        self._waiting: dict[str, asyncio.Future[Answer]] = {}

    async def tell(self, command: v1.AgentCommand, limit_s: float, stop: Stop | None = None) -> Answer:
        """Send *command* once and return the answer; or that there is none, after *limit_s* s or a *stop*."""
        command.command_id = uuid.uuid4().hex
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[command.command_id] = answer
        self._commands.put_nowait(command)
        stopped = partial(_settle, answer, Answer(CANCELLED, silent=True))
        try:
            with (stop or Stop()).telling(stopped):
                return await Limit(limit_s).over(answer)
        except asyncio.TimeoutError:
            return Answer(f"the application gave no answer within {limit_s:.3g} s", silent=True)
        finally:
            del self._waiting[command.command_id]

    def answered(self, result: v1.CommandResult) -> None:
        """Take a result; one that nobody waits for is dropped."""
        answer = self._waiting.get(result.command_id)
        if answer is not None:
            error = "" if result.ok else result.error[:REASON_MAX] or "the application gave no reason"
            _settle(answer, Answer(error))

    def lost(self) -> None:
        """The stream has ended: nobody will answer."""
        for answer in self._waiting.values():
            _settle(answer, Answer("the application's channel was lost while it worked on the command"))

    async def commands(self) -> AsyncIterator[v1.AgentCommand]:
        """Yield the commands to send."""
        while True:
            yield await self._commands.get()


class Channels:
    """The newest channel of each rank of each job."""

    def __init__(self) -> None:
        self._channels: dict[str, dict[int, Channel]] = {}
        self._saved: dict[str, int] = {}
        self._opened = asyncio.Event()

    def open(self, job: str, channel: Channel) -> None:
        """Make *channel* the one of its rank; where the number of ranks is another now, of the whole job."""
        ranks = self._channels.setdefault(job, {})
        for rank, other in list(ranks.items()):
            if other.speaker.ranks != channel.speaker.ranks:
                del ranks[rank]
        ranks[channel.speaker.rank] = channel
        self._opened.set()

    def close(self, job: str, channel: Channel) -> None:
        """Forget *channel*; the job keeps a newer one that has replaced it."""
        channel.lost()
        ranks = self._channels.get(job, {})
        if ranks.get(channel.speaker.rank) is channel:
            del ranks[channel.speaker.rank]
        if not ranks:
            self._channels.pop(job, None)
            self._saved.pop(job, None)

    def of(self, job: str) -> list[Channel]:
        """Return the job's channels in order of rank."""
        return [channel for _, channel in sorted(self._channels.get(job, {}).items())]

    def saved(self, job: str, size: int) -> None:
        """Note that *job* has saved *size* bytes."""
        self._saved[job] = max(size, self._saved.get(job, 0))

    def set_aside(self, job: str) -> int:
        """Return how many bytes of host memory the job has set aside, and so been charged for already."""
        arenas = [channel.speaker.arena_bytes for channel in self.of(job)]
        told = sum(arena or 0 for arena in arenas)
        return told if None in arenas else max(told, self._saved.get(job, 0))

    def missing(self, job: str) -> str:
        """Return what is missing before every rank of *job* has a channel, in words; empty: nothing."""
        channels = self.of(job)
        if not channels:
            return f"job {job} has no workload channel; its application must open one and register"
        ranks = channels[0].speaker.ranks
        if len(channels) == ranks:
            return ""
        there = {channel.speaker.rank for channel in channels}
        absent = ", ".join(str(rank) for rank in range(ranks) if rank not in there)
        return f"job {job}: of its {ranks} ranks here these have no workload channel: {absent}"

    async def complete(self, job: str) -> None:
        """Wait until every rank of *job* has a channel."""
        while self.missing(job):
            self._opened.clear()
            await self._opened.wait()


def _settle(future: asyncio.Future[Answer], answer: Answer) -> None:
    if not future.done():
        future.set_result(answer)


def _number(metadata: Mapping[str, str | bytes], key: str, maximum: int) -> int:
    return parse_number(metadata.get(key, "0"), key, maximum)
