"""What a backend is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Protocol, TypeVar

from slurm_interleave.node_agent.contexts import Outcome, Seen
from slurm_interleave.node_agent.waits import Stop

Result = TypeVar("Result")


@dataclass(frozen=True)
class Device:
    """One device of this node; sizes in bytes."""

    index: int
    uuid: str
    type: str
    memory_bytes: int
    used_bytes: int = 0


@dataclass(frozen=True)
class User:
    """A process on a device, *working* or with memory there. *claims* is the job that it says it is of."""

    device: int
    pid: int
    working: bool
    claims: str = ""


async def it_fits(_mover: Mover, _size: int) -> str:
    """Say that so many bytes fit."""
    return ""


@dataclass(frozen=True)
class Target:
    """Whose state is to be moved, and the limits: *deadline_s* seconds, or until *stop* is set.

    A move that is told to stop undoes what it did, where it can do so safely, and has failed then.
    """

    job: str
    devices: tuple[int, ...]
    deadline_s: float
    stop: Stop = field(default_factory=Stop)
    living: bool = False  # of a discard: the job goes on, so its processes may use the state right now
    spill: bool = False  # it is to be saved on disk, or is; see `Mover.can_spill`
    # Why so many bytes do not fit in host memory that a mover would save there all the same; empty: they do.
    fits: Callable[[Mover, int], Awaitable[str]] = it_fits


class Charge(Enum):
    """Whose host memory holds what a mover saves."""

    NOTHING = "nothing"  # there is none
    NODE = "node"  # the agent's own
    JOB = "job"  # the job's, or nobody knows: it must fit in the job's and in the node's


class Mover(Protocol):
    """The three verbs.

    A verb returns an `Outcome`, that says too where the state is if the verb failed. Whatever it raises
    counts as a state that nobody knows: the job is faulted.
    """

    name: ClassVar[str]
    in_app: ClassVar[bool]  # whether the application keeps the saved state in its own memory
    in_process: ClassVar[bool] = (
        False  # whether it is in the memory of the job's processes, whoever put it there
    )
    in_place: ClassVar[bool] = False  # whether it only copies, and the context stays on the devices
    copy_name: str = ""  # of what it saves then: copies of several names stand side by side
    can_spill: bool = False  # whether it can save on disk what does not fit in host memory
    charge: Charge = Charge.JOB

    def saved_size(self, resident: int) -> int:
        """Return how many bytes of host memory a saved context takes that has *resident* on the devices."""
        return resident

    def fresh_size(self, job: str, resident: int) -> int:  # noqa: ARG002
        """Return how many of them *job* does not have in host memory yet."""
        return self.saved_size(resident)

    async def snapshot(self, target: Target) -> Outcome:
        """Take the state off the devices; nothing there: context `none`."""

    async def restore(self, target: Target) -> Outcome:
        """Bring it back, but only if there is room for it."""

    async def discard(self, target: Target) -> Outcome:
        """Forget it, wherever it is.

        What cannot be taken from a process that lives on (*target.living*) stays; the outcome says so.
        """


@dataclass(frozen=True)
class Region:
    """*size* bytes of device memory of a process."""

    pid: int
    address: int
    size: int


class CopiesRegions(Protocol):
    """A backend that can keep named copies of chosen memory, several side by side."""

    charge: Charge
    can_spill: bool

    async def save_regions(self, target: Target, name: str, regions: Sequence[Region]) -> Outcome:
        """Copy them under *name*, in place of an older copy of that name."""

    async def load_regions(self, target: Target, name: str, regions: Sequence[Region]) -> Outcome:
        """Copy them back from there."""


class Backend(Mover, Protocol):
    """Moves the device state of any job, and sees the node's devices."""

    # What an application that has suspended itself may keep on each device: contexts, communicators, graphs.
    keeps_bytes: int = 0
    # Whether a process whose state is saved stands still where it uses a device next, until that is back.
    pauses: ClassVar[bool] = False
    # Whether a process whose state was brought back must be saved again before it is killed.
    saves_to_kill: bool = False
    settles_s: float = 0.0  # how long memory that was freed may take to be seen as free

    def devices(self) -> list[Device]:
        """Return the node's devices, with what is used of them now."""

    def look(self, job: str) -> Seen | None:
        """Return what *job* has on this node, or None where that cannot be seen."""

    async def look_now(self, job: str) -> Seen | None:
        """Return the same, and nothing that was seen before. Raises `OSError` where it cannot look now."""
        return self.look(job)

    async def idle(self, job: str, devices: Sequence[int]) -> bool | None:  # noqa: ARG002
        """Tell whether *job*, which has state on *devices*, has not used them within the last moments.

        None where that cannot be seen. Raises `OSError` where it cannot look now.
        """
        return None

    def caution(self, job: str) -> str:  # noqa: ARG002
        """Return what keeps *job* from being saved, as it is now, for its owner; empty: nothing is seen.

        May block for a moment: it is called in a thread. Raises `OSError` where it cannot look now.
        """
        return ""

    def users(self) -> list[User]:
        """Return the processes that are on the devices now; none where that cannot be seen.

        May block for a moment: it is called in a thread. Raises `OSError` where it cannot look now.
        """
        return []

    def carried(self, job: str) -> dict[str, Any]:  # noqa: ARG002
        """Return, for JSON, what it takes to restore *job* when its processes, saved as it is, come back."""
        return {}

    def refuses(self, target: Target, carried: Mapping[str, Any]) -> str:  # noqa: ARG002
        """Return why what was `carried` cannot be restored on the devices of *target*; empty: it can."""
        return ""

    async def came_back(self, target: Target, carried: Mapping[str, Any]) -> str:  # noqa: ARG002
        """Take over the job's processes, with its state in their memory; return why it cannot be found."""
        return ""

    async def recover(self, jobs: Sequence[str]) -> None:
        """Clean up after an agent that was killed, and find out where these *jobs* are."""

    async def close(self) -> None:
        """Let go of what the backend holds; what is saved stays."""


async def in_thread(work: Callable[[], Result]) -> Result:
    """Run *work* in a thread of its own, that a stuck one neither delays others nor the agent's end."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def settle(set_it: Callable[[], None]) -> None:
        if not future.done():
            set_it()

    def run() -> None:
        try:
            result = work()
        except BaseException as raised:  # noqa: BLE001 - handed over to the waiting task as it is
            error = raised
            _tell(loop, lambda: settle(lambda: future.set_exception(error)))
        else:
            _tell(loop, lambda: settle(lambda: future.set_result(result)))

    threading.Thread(target=run, daemon=True).start()
    return await future


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(callback)
