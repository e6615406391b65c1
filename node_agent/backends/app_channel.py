"""The backend of applications that move their own device state, as told over their workload channels."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import ClassVar

from typing_extensions import override

from slurm_interleave.client.core.ranges import SPILL_TAG
from slurm_interleave.client.core.states import Context
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2 as v1
from slurm_interleave.node_agent.backends.channel import Answer, Channel, Channels
from slurm_interleave.node_agent.backends.freed import Freed, look
from slurm_interleave.node_agent.backends.protocol import Backend, Mover, Target
from slurm_interleave.node_agent.contexts import Outcome
from slurm_interleave.node_agent.waits import CANCELLED, Limit, Stop

_DEFAULT_MODE = v1.SUSPEND_MODE_OFFLOAD
# Applications open their channels anew within this time, after a restart of the agent for example.
RETURN_S = 10.0
# Of an operation's time a command may take so much; the rest is for undoing it.
_MOVED = 0.7


class ChannelMover(Mover):
    """Moves the state of one job by commands to its ranks: all of them, or none."""

    name: ClassVar[str] = "app_channel"
    in_app: ClassVar[bool] = True
    in_process: ClassVar[bool] = True

    def __init__(
        self,
        channels: Channels,
        backend: Backend,
        mode: v1.SuspendMode = v1.SUSPEND_MODE_UNSPECIFIED,
        tags: Sequence[str] = (),
        *,
        leaves_rest: bool = False,
        spill: Callable[[], AbstractAsyncContextManager[Path]] | None = None,
    ) -> None:
        """*mode* unspecified: the application's default; *backend* sees whether the devices are free.

        *leaves_rest*: what the application leaves on the devices is for another mover to save.
        *spill* gives a folder on disk for one command; None: its ranks cannot save there.
        """
        self._channels = channels
        self._backend = backend
        self._mode = mode
        self._tags = tags
        self._leaves_rest = leaves_rest
        self._spill = spill
        self.can_spill = spill is not None

    @override
    async def snapshot(self, target: Target) -> Outcome:
        """Tell every rank to suspend, then check that they left the devices."""
        begun = time.monotonic()
        if error := await self._missing(target):
            return Outcome(Context.RESIDENT, error=error)
        channels = self._channels.of(target.job)
        if error := self._cannot(target.job, channels):
            return Outcome(Context.RESIDENT, error=error)
        freed = await Freed.begin(
            self._backend, target, partial=bool(self._tags), leaves_rest=self._leaves_rest
        )
        answers = await self._suspended(channels, target, begun + target.deadline_s * _MOVED, target.stop)
        error = _words(answers) or await freed.verified(0.0) or (CANCELLED if target.stop.is_set() else "")
        if not error:
            outcome = freed.outcome()
            if not target.spill:
                self._channels.saved(target.job, outcome.moved)
            return outcome
        undone = await _told(_moved(channels, answers), self._resume, begun + target.deadline_s)
        return _failed(Context.RESIDENT, error, _words(undone))

    @override
    async def restore(self, target: Target) -> Outcome:
        """Tell every rank to come back; if one cannot, the others suspend again."""
        begun = time.monotonic()
        if error := await self._missing(target):
            return Outcome(Context.SAVED, error=error)
        channels = self._channels.of(target.job)
        answers = await _told(channels, self._resume, begun + target.deadline_s * _MOVED, target.stop)
        if error := _words(answers) or (CANCELLED if target.stop.is_set() else ""):
            undone = await self._suspended(_moved(channels, answers), target, begun + target.deadline_s)
            return _failed(Context.SAVED, error, _words(undone))
        seen = await look(self._backend, target.job)
        return Outcome(Context.RESIDENT, seen.bytes if seen else 0)

    @override
    def fresh_size(self, job: str, resident: int) -> int:
        """Without what the job's ranks have set aside."""
        return max(0, resident - self._channels.set_aside(job))

    @override
    async def discard(self, target: Target) -> Outcome:
        """Do nothing: the application's memory ends with it."""
        return Outcome(Context.NONE)

    async def _suspended(
        self, channels: Sequence[Channel], target: Target, until: float, stop: Stop | None = None
    ) -> list[Answer]:
        """Return the answers to the command to suspend, on disk where *target* says so."""
        if not target.spill or self._spill is None:
            return await _told(channels, self._suspend, until, stop)
        try:
            async with self._spill() as folder:
                tag = f"{SPILL_TAG}{folder}"
                return await _told(channels, lambda channel: self._suspend(channel, tag), until, stop)
        except OSError as error:
            return [Answer(f"spill_dir cannot be used: {error}")] * len(channels)

    def _suspend(self, channel: Channel, *more: str) -> v1.AgentCommand:
        mode = self._mode_of(channel)
        return v1.AgentCommand(snapshot=v1.SnapshotCommand(mode=mode, tags=[*self._tags, *more]))

    def _resume(self, _channel: Channel) -> v1.AgentCommand:
        return v1.AgentCommand(restore=v1.RestoreCommand(tags=self._tags))

    def _mode_of(self, channel: Channel) -> v1.SuspendMode:
        return self._mode or channel.capabilities.default_mode or _DEFAULT_MODE

    def _cannot(self, job: str, channels: Sequence[Channel]) -> str:
        """Return why one of *channels* cannot do what is wanted, before anything is sent; empty: all can."""
        for channel in channels:
            mode, able = self._mode_of(channel), channel.capabilities.supported_modes
            if able and mode not in able:
                known = ", ".join(v1.SuspendMode.Name(each) for each in able)
                return f"job {job} cannot do {v1.SuspendMode.Name(mode)}; it can do {known}"
        return ""

    async def _missing(self, target: Target) -> str:
        """Return which ranks have no channel, after waiting for those that open theirs anew; empty: none."""
        if self._channels.missing(target.job):
            try:
                await Limit(min(RETURN_S, target.deadline_s)).over(self._channels.complete(target.job))
            except asyncio.TimeoutError:
                return self._channels.missing(target.job)
        return ""


def _failed(where: Context, why: str, undoing: str) -> Outcome:
    """Return the outcome of a move that failed: as before, unless undoing it failed too."""
    if undoing:
        return Outcome(Context.FAULTED, error=f"{why}; and then, undoing it: {undoing}")
    return Outcome(where, error=why)


async def _told(
    channels: Sequence[Channel],
    command: Callable[[Channel], v1.AgentCommand],
    until: float,
    stop: Stop | None = None,
) -> list[Answer]:
    """Return the answers of *channels* to the command to each, *until* on the monotonic clock or a *stop*."""
    left_s = max(0.0, until - time.monotonic())
    asked = (channel.tell(command(channel), left_s, stop) for channel in channels)
    return list(await asyncio.gather(*asked))


def _moved(channels: Sequence[Channel], answers: Sequence[Answer]) -> list[Channel]:
    """Return the ranks that did what was asked, or may do it still; one that failed is as it was, as it says.

    Commands are carried out in order. So a silent one that answers the opposite command has undone the first.
    """
    pairs = zip(channels, answers, strict=True)
    return [channel for channel, answer in pairs if answer.silent or not answer.error]


def _words(answers: Sequence[Answer]) -> str:
    """Return the different errors, each with the ranks that gave it where there are several."""
    ranks: dict[str, list[str]] = {}
    for rank, answer in enumerate(answers):
        if answer.error:
            ranks.setdefault(answer.error, []).append(str(rank))
    if len(answers) == 1:
        return answers[0].error
    return "; ".join(f"rank {', '.join(which)}: {error}" for error, which in ranks.items())
