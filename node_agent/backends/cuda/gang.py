"""The processes of one job while its state is moved: what is done to all, and what is undone for all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slurm_interleave.node_agent.backends.cuda import table
from slurm_interleave.node_agent.backends.cuda.helpers import HelperLost, Helpers, HelperUnusable
from slurm_interleave.node_agent.backends.cuda.table import Call, State, Verdict
from slurm_interleave.node_agent.job_processes import Handle
from slurm_interleave.node_agent.processes import Process
from slurm_interleave.node_agent.waits import CANCELLED, Stop

_ASK_S = 5.0
_LOCK_MORE_S = 5.0
_COPY_MORE_S = 30.0
_SLOWEST = 1e9  # bytes a second; what takes longer than that is taken for a hang


@dataclass(frozen=True)
class Failure:
    """What went wrong with one process."""

    call: Call
    pid: int
    verdict: Verdict
    code: int | None
    text: str

    def __str__(self) -> str:
        return f"{self.call.value} of process {self.pid}: {self.text}"


@dataclass
class Limits:
    """Until when, by the event loop's clock in seconds; and for how long, in seconds."""

    until: float
    lock_s: float
    bytes: int = 0
    pairs: list[tuple[str, str]] = field(default_factory=list)
    store: str = ""  # folder of the job's copies; empty: the driver keeps them
    sizes: Mapping[int, Mapping[str, int]] = field(default_factory=dict)  # bytes by process and device
    stop: Stop = field(default_factory=Stop)

    def of(self, call: Call) -> float:
        """Return how long one call may take; at least a second, that undoing can begin."""
        left = self.until - asyncio.get_running_loop().time()
        if call is Call.LOCK:
            left = min(left, self.lock_s)
        elif self.bytes:
            left = min(left, _COPY_MORE_S + self.bytes / _SLOWEST)
        return max(left, 1.0)

    def arguments(self, call: Call, process: Process) -> dict[str, Any]:
        """Return what a helper is told of a call, besides the process."""
        stored = {"store": f"{self.store}/{process.pid}.{process.started}"} if self.store else {}
        if call is Call.RESTORE:
            return {"pairs": self.pairs, **stored}
        if call is Call.CHECKPOINT and stored:
            return {"sizes": self.sizes.get(process.pid, {}), **stored}
        return {}


class Gang:
    """Those processes of a job that have something on a device. Close it after use."""

    def __init__(self, helpers: Helpers) -> None:
        self._helpers = helpers
        self._members: dict[int, Handle] = {}
        self._dropped: list[Handle] = []
        self._at: dict[int, int] = {}  # their states, where they are sure
        self._lost: set[int] = set()  # those of which nobody can say where they are
        self.blind = False  # the driver cannot be asked how a call ended whose answer was lost
        self.in_turn = False  # one process after the other, as jobs under --launch-job need it

    def __contains__(self, process: Process) -> bool:
        handle = self._members.get(process.pid)
        return handle is not None and handle.process == process

    @property
    def processes(self) -> list[Process]:
        """The members."""
        return [handle.process for handle in self._members.values()]

    @property
    def dropped(self) -> list[Process]:
        """Who was a member, until the driver knew nothing of it."""
        return [handle.process for handle in self._dropped]

    def at(self, state: State) -> list[Process]:
        """Return the members that are surely in *state*."""
        return [process for process in self.processes if self._at.get(process.pid) == state]

    def add(self, processes: Iterable[Process]) -> None:
        """Take more members."""
        for process in processes:
            self._members[process.pid] = Handle(process)

    def close(self) -> None:
        """Let go of all."""
        for handle in (*self._members.values(), *self._dropped):
            handle.close()

    async def each(self, call: Call, limits: Limits, only: Sequence[Process] | None = None) -> list[Failure]:
        """Make *call* to all members (or *only* those), at once or in turn; return what failed.

        A member that has ended, or has nothing to save, is none any more.
        """
        members = [handle for handle in self._members.values() if only is None or handle.process in only]
        if not self.in_turn:
            results = await asyncio.gather(*(self._one(call, handle, limits) for handle in members))
            return [failure for failure in results if failure is not None]
        for handle in members:
            if limits.stop.is_set():
                return [Failure(call, handle.process.pid, Verdict.REFUSED, None, CANCELLED)]
            failure = await self._one(call, handle, limits)
            if failure is not None:
                return [failure]
        return []

    async def bring(self, goal: State, limits: Limits) -> list[Failure]:
        """Bring all members to *goal*, wherever they are; return who is not there.

        Those whose state is sure come first: while a peer is locked, the driver may not even say how it is
        with another.
        """
        sure = [handle for pid, handle in self._members.items() if pid in self._at]
        failures = await self._bring_some(goal, sure, limits)
        unsure = [handle for pid, handle in self._members.items() if pid not in self._at]
        for handle in unsure:
            await self._ask(handle)
        return failures + await self._bring_some(goal, unsure, limits)

    async def ask_all(self) -> None:
        """Ask for the state of each member."""
        await asyncio.gather(*(self._ask(handle) for handle in list(self._members.values())))

    def drop(self, processes: Iterable[Process]) -> None:
        """Leave these alone from now on."""
        for process in processes:
            self._dropped.append(self._members.pop(process.pid))

    async def _ask(self, handle: Handle) -> None:
        answer = await self._state(handle, fresh=False)
        if answer is not None and answer[0] == 0:
            self._at[handle.process.pid] = answer[1]

    async def _bring_some(self, goal: State, handles: list[Handle], limits: Limits) -> list[Failure]:
        if self.in_turn:
            results = [await self._bring_one(goal, handle, limits) for handle in handles]
        else:
            results = await asyncio.gather(*(self._bring_one(goal, handle, limits) for handle in handles))
        return [failure for failure in results if failure is not None]

    async def _bring_one(self, goal: State, handle: Handle, limits: Limits) -> Failure | None:
        pid = handle.process.pid
        while not handle.ended() and pid in self._members:
            if pid in self._lost:
                return Failure(Call.UNLOCK, pid, Verdict.LOST, None, "nobody can ask how its toggle ended")
            try:
                call = table.towards(goal, self._at.get(pid, -1))
            except ValueError as error:
                text = f"it cannot be brought to {goal.name}: {error}"
                return Failure(Call.UNLOCK, pid, Verdict.LOST, None, text)
            if call is None:
                return None
            failure = await self._one(call, handle, limits)
            if failure is not None:
                return failure
        return None

    async def _one(self, call: Call, handle: Handle, limits: Limits) -> Failure | None:
        """Make one call, never twice, and find out how it ended."""
        pid, limit_s = handle.process.pid, limits.of(call)
        arguments = limits.arguments(call, handle.process)
        if call is Call.LOCK:
            arguments["timeout_ms"] = int(limit_s * 1000)
            limit_s += _LOCK_MORE_S
        try:
            answer = await self._helpers.ask(call.value, limit_s, ended=handle.ended, pid=pid, **arguments)
            code: int | None = answer[0]
        except HelperLost:
            code = None
        except HelperUnusable as error:
            return Failure(call, pid, Verdict.REFUSED, None, str(error))
        verdict = await self._judge(call, code, handle)
        if verdict is Verdict.GONE:
            self._dropped.append(self._members.pop(pid))
        if verdict in (Verdict.DONE, Verdict.GONE):
            return None
        return Failure(call, pid, verdict, code, table.meaning(code, limit_s))

    async def _judge(self, call: Call, code: int | None, handle: Handle) -> Verdict:
        """Find out how a call has ended, and remember where the process is."""
        pid = handle.process.pid
        if code == 0:
            self._at[pid] = table.TO[call]
            return Verdict.DONE
        if call is Call.LOCK and code == table.NOT_READY:
            self._at[pid] = State.RUNNING  # as documented; a peer of a locked process need not answer
            return Verdict.GONE if handle.ended() else Verdict.REFUSED
        if self.blind and code is None:
            self._lost.add(pid)
        asked = None if pid in self._lost else await self._state(handle, fresh=code is None)
        verdict = table.judge(call, code, asked, ended=handle.ended())
        self._at.pop(pid, None)
        if asked is not None and asked[0] == 0:
            self._at[pid] = asked[1]
        return verdict

    async def _state(self, handle: Handle, *, fresh: bool) -> tuple[int, int] | None:
        try:
            code, state = await self._helpers.ask(
                "state", _ASK_S, fresh=fresh, ended=handle.ended, pid=handle.process.pid
            )
        except (HelperLost, HelperUnusable):
            return None
        return code, state
