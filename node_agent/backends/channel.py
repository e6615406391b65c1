"""The backend of applications that move their own device state, as told over their workload channel."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import ClassVar

from typing_extensions import override

from slurm_interleave.client.core.states import Context
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2 as v1
from slurm_interleave.node_agent.backends.protocol import Backend, Mover, Target
from slurm_interleave.node_agent.contexts import Outcome

_DEFAULT_MODE = v1.SUSPEND_MODE_OFFLOAD


class Channel:
    """One connected application: what it can do, and the commands that it has not answered yet."""

    def __init__(self, capabilities: v1.WorkloadCapabilities) -> None:
        """Begin with what the application said of itself."""
        self.capabilities = capabilities
        self._commands: asyncio.Queue[v1.AgentCommand] = asyncio.Queue()
        self._waiting: dict[str, asyncio.Future[str]] = {}

    async def tell(self, command: v1.AgentCommand) -> str:
        """Send *command* once and return what went wrong, as the application says; empty: nothing."""
        command.command_id = uuid.uuid4().hex
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting[command.command_id] = answer
        self._commands.put_nowait(command)
        try:
            return await answer
        finally:
            del self._waiting[command.command_id]

    def answered(self, result: v1.CommandResult) -> None:
        """Take a result; one that nobody waits for is dropped."""
        answer = self._waiting.get(result.command_id)
        if answer is not None and not answer.done():
            answer.set_result("" if result.ok else result.error or "the application gave no reason")

    def lost(self) -> None:
        """The stream has ended: nobody will answer."""
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_result("the application's channel was lost while it worked on the command")

    async def commands(self) -> AsyncIterator[v1.AgentCommand]:
        """Yield the commands to send."""
        while True:
            yield await self._commands.get()


class Channels:
    """The newest channel of each job."""

    def __init__(self) -> None:
        self._channels: dict[str, Channel] = {}

    def open(self, job: str, channel: Channel) -> None:
        """Make *channel* the one of *job*."""
        self._channels[job] = channel

    def close(self, job: str, channel: Channel) -> None:
        """Forget *channel*; the job keeps a newer one that has replaced it."""
        channel.lost()
        if self._channels.get(job) is channel:
            del self._channels[job]

    def get(self, job: str) -> Channel | None:
        """Return the job's channel, if it has one."""
        return self._channels.get(job)


class ChannelMover(Mover):
    """Moves the state of one job by commands to its application."""

    name: ClassVar[str] = "app_channel"
    in_app: ClassVar[bool] = True
    in_process: ClassVar[bool] = True

    def __init__(
        self,
        channels: Channels,
        backend: Backend,
        mode: v1.SuspendMode = v1.SUSPEND_MODE_UNSPECIFIED,
        tags: Sequence[str] = (),
    ) -> None:
        """*mode* unspecified: the application's default; *backend* sees whether the devices are free."""
        self._channels = channels
        self._backend = backend
        self._mode = mode
        self._tags = tags

    @override
    async def snapshot(self, target: Target) -> Outcome:
        """Tell the application to suspend, then check that it left the devices."""
        channel = self._channels.get(target.job)
        if channel is None:
            return Outcome(Context.RESIDENT, error=_no_channel(target))
        capabilities = channel.capabilities
        mode = self._mode or capabilities.default_mode or _DEFAULT_MODE
        if capabilities.supported_modes and mode not in capabilities.supported_modes:
            known = ", ".join(v1.SuspendMode.Name(able) for able in capabilities.supported_modes)
            error = f"job {target.job} cannot do {v1.SuspendMode.Name(mode)}; it can do {known}"
            return Outcome(Context.RESIDENT, error=error)
        before = self._backend.look(target.job)
        command = v1.AgentCommand(snapshot=v1.SnapshotCommand(mode=mode, tags=self._tags))
        if error := await channel.tell(command):
            return Outcome(Context.RESIDENT, error=error)
        left = self._backend.look(target.job)
        if left is not None and left.state is Context.RESIDENT:
            text = (
                f"job {target.job} said that it is suspended, but {left.bytes} bytes are on its devices still"
            )
            return Outcome(Context.RESIDENT, error=text)
        return Outcome(Context.SAVED, before.bytes if before else 0)

    @override
    async def restore(self, target: Target) -> Outcome:
        """Tell the application to come back."""
        channel = self._channels.get(target.job)
        if channel is None:
            return Outcome(Context.SAVED, error=_no_channel(target))
        if error := await channel.tell(v1.AgentCommand(restore=v1.RestoreCommand(tags=self._tags))):
            return Outcome(Context.SAVED, error=error)
        seen = self._backend.look(target.job)
        return Outcome(Context.RESIDENT, seen.bytes if seen else 0)

    @override
    async def discard(self, target: Target) -> Outcome:
        """Do nothing: the application's memory ends with it."""
        return Outcome(Context.NONE)


def _no_channel(target: Target) -> str:
    return f"job {target.job} has no workload channel; its application must open one and register"
