"""The helper processes, from the agent's side: started when needed, kept warm, killed when they hang."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from slurm_interleave.client.core.single import open_lock

_MODULE = "slurm_interleave.node_agent.backends.cuda.worker"
# What a job's or an administrator's shell may have set, and must not decide what a helper sees.
_NOT_INHERITED = frozenset({"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LD_PRELOAD"})
_HARMLESS = frozenset({"devices", "facts", "state", "thread"})
_LOOK_S = 0.25
_AFTER_END_S = 2.0
_LINE = 1 << 22
_START_S = 30.0


class HelperLost(Exception):
    """The helper was killed, or gave no answer in time: its call may have reached the driver."""


class HelperUnusable(Exception):
    """The call did not reach the driver; the text says why."""


def command(program: str = "", *, toggles: bool = False) -> list[str]:
    """Return how a helper is started; *program*: cuda-checkpoint, in place of the driver's functions.

    *toggles*: with this driver it can do nothing else.
    """
    options = ["--toggles"] if toggles else []
    return [sys.executable, "-m", _MODULE, *(["--tool", program, *options] if program else [])]


def environment() -> dict[str, str]:
    """Return what a helper is started with."""
    return {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}


class Helper:
    """One process, one call at a time."""

    def __init__(
        self, process: subprocess.Popen[bytes], lines: asyncio.StreamReader, calls: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._lines = lines
        self._calls = calls

    @classmethod
    async def start(cls, argv: list[str], lock: int) -> Helper:
        """Start one, in a session of its own: what ends the agent must not end it in the middle of a call.

        So it is no asyncio subprocess either: those are killed with their event loop.
        """
        ours, theirs = socket.socketpair()
        try:
            process = _start(argv, theirs.fileno(), lock)
        except OSError as error:
            ours.close()
            raise HelperUnusable(f"a helper cannot be started: {error}") from error
        finally:
            theirs.close()
        try:
            return cls(process, *await asyncio.open_unix_connection(sock=ours, limit=_LINE))
        except BaseException:
            ours.close()  # by that it ends
            _reap(process)
            raise

    async def ask(self, call: str, limit_s: float, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return its answer. Raises `HelperLost`."""
        request = {"call": call, "limit_s": limit_s, "arguments": dict(arguments)}
        try:
            self._calls.write(json.dumps(request).encode() + b"\n")
            await self._calls.drain()
            line = await self._lines.readline()
        except (OSError, ValueError) as error:
            raise HelperLost(str(error)) from error
        if not line:
            raise HelperLost(f"helper {self._process.pid} has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def kill(self) -> None:
        """End it now, with what it runs. One that the kernel cannot end yet is left to it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self.release()
        await self.ended()

    def release(self) -> None:
        """Need no more answers: it ends when its call does."""
        self._calls.close()
        _reap(self._process)

    async def ended(self) -> None:
        """Wait a little for its end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, _AFTER_END_S)


class Helpers:
    """As many helpers as there are calls at once; up to *warm* of them are kept between."""

    def __init__(self, argv: list[str], warm: int, lock: Path) -> None:
        """*lock* is a file that each helper holds for as long as it lives, beyond the agent's end too."""
        self._argv = argv
        self._lock = os.fdopen(open_lock(lock), "rb")
        self._warm = warm
        self._idle: list[Helper] = []
        self._released: list[Helper] = []

    async def ask(
        self,
        call: str,
        limit_s: float,
        *,
        fresh: bool = False,
        ended: Callable[[], bool] = lambda: False,
        **arguments: Any,
    ) -> tuple[int, Any]:
        """Return the driver's code and value.

        *fresh*: of a helper that was not used yet. A process that has *ended* is not waited for. Raises
        `HelperLost` and `HelperUnusable`.
        """
        helper = (
            self._idle.pop()
            if self._idle and not fresh
            else await Helper.start(self._argv, self._lock.fileno())
        )
        try:
            answer = await self._within(helper.ask(call, limit_s, arguments), limit_s, ended)
        except BaseException as error:
            # Where the agent stops in the middle of a call that changes something, that call may end.
            if isinstance(error, HelperLost) or call in _HARMLESS:
                await helper.kill()
            else:
                helper.release()
                self._released.append(helper)
            raise
        if "unusable" in answer or len(self._idle) >= self._warm:
            await helper.kill()
        else:
            self._idle.append(helper)
        if "unusable" in answer:
            raise HelperUnusable(answer["unusable"])
        return answer["code"], answer["value"]

    async def warm_up(self, count: int) -> None:
        """Have *count* helpers ready: to start with the driver takes seconds on a large node."""
        asked = (self.ask("thread", _START_S, pid=os.getpid()) for _ in range(count))
        await asyncio.gather(*asked, return_exceptions=True)

    async def wait_for_earlier(self, within_s: float) -> bool:
        """Wait until the helpers of an earlier agent have ended their calls, and say whether they have."""
        last = asyncio.get_running_loop().time() + within_s
        while not self._is_alone():
            if asyncio.get_running_loop().time() > last:
                return False
            await asyncio.sleep(_LOOK_S)
        return True

    async def close(self) -> None:
        """End those that rest; one in the middle of a call ends when that is over."""
        self._warm = 0  # one that answers from now on does not rest
        idle, self._idle = self._idle, []
        await asyncio.gather(
            *(helper.kill() for helper in idle), *(helper.ended() for helper in self._released)
        )
        self._lock.close()

    def _is_alone(self) -> bool:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    async def _within(self, asking: Any, limit_s: float, ended: Callable[[], bool]) -> dict[str, Any]:
        """Await the answer, but not beyond *limit_s*, nor long for a process that has ended."""
        loop = asyncio.get_running_loop()
        last = loop.time() + limit_s
        task = asyncio.ensure_future(asking)
        try:
            while not task.done() and (left := last - loop.time()) > 0:
                await asyncio.wait({task}, timeout=min(_LOOK_S, left))
                if ended():
                    last = min(last, loop.time() + _AFTER_END_S)
                    ended = _never
            if not task.done():
                raise HelperLost(f"no answer within {limit_s:.0f} s")
            answer: dict[str, Any] = task.result()
            return answer
        finally:
            task.cancel()


def _start(argv: list[str], end: int, lock: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv, stdin=end, stdout=end, cwd="/", env=environment(), pass_fds=(lock,), start_new_session=True
    )


def _reap(process: subprocess.Popen[bytes]) -> None:
    """Take the end of *process* from the kernel, whenever it comes: nobody else waits for it any more."""
    threading.Thread(target=process.wait, name="reap", daemon=True).start()


def _never() -> bool:
    return False
