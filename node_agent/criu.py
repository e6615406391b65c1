"""The program `criu`: a process tree to files and back. From criu(8), and from trying 4.1.1 and 4.2.1.

It runs without its plugins: device state is off the devices before a dump, so its CUDA plugin, which would
move it a second time, has nothing to do (checkpoint-restore/criu#3022).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import resource
import select
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from slurm_interleave.client.core.errors import InterleaveError
from slurm_interleave.node_agent import processes
from slurm_interleave.node_agent.waits import CANCELLED, Stop

OLDEST = (4, 1)
_VERSION = re.compile(r"Version:\s*(\d+)\.(\d+)\S*")
_PROBE_S = 10.0
_FAILS_S = 5.0  # for a dump that can write no more to undo what it did, before it is killed
_LAST_ERRORS = 2
_ROOM = 1 << 20  # bytes; a disk with less of them free is full
_NAMELESS = "1048576G"  # open files without a name are saved too up to this size: state that was spilled
_TAKEN = re.compile(r"Can't fork for \d+: File exists")
_TAKEN_S, _AGAIN_S = 10.0, 0.25
# A shell does it, since forking this process, with its threads, to run Python in the child is not safe.
_ENTER = 'while [ "$1" != -- ]; do echo 0 >"$1" || exit 126; shift; done; shift; exec "$@"'
_IN_CGROUPS = ("/bin/sh", "-c", _ENTER, "sh")
# Noise: criu goes on after it.
_HARMLESS = ("rlimit: Can't setup RLIMIT_NOFILE", "FAILED.")


class CriuFailed(InterleaveError):
    """criu cannot be used, or did not do what it was told; the text says why."""

    status = "FAILED_PRECONDITION"


class Criu:
    """Runs criu, each time with a deadline; a run that is late is ended with all that it started."""

    def __init__(self, program: str, timeout_s: float) -> None:
        """*program* is a path or a name on PATH, *timeout_s* what one dump or restore may take."""
        self._program = program
        self._timeout_s = timeout_s

    async def check(self) -> None:
        """Raise `CriuFailed` with what is wrong with criu here and what to install."""
        code, said = await self._run(["--version"], _PROBE_S)
        found = _VERSION.search(said)
        if code != 0 or found is None:
            raise CriuFailed(f"{self._program} --version answered {said.strip()!r}, exit code {code}")
        if (int(found[1]), int(found[2])) < OLDEST:
            raise CriuFailed(
                f"{self._program} is {found[0].split()[-1]}, too old: Debian 12's 3.17 fails on new kernels; "
                "install criu 4.1 or later (Debian 13), or 4.2 for Linux 6.16 and later, and name it in "
                "[agent] criu"
            )
        code, said = await self._run(["check"], _PROBE_S)
        if code != 0:
            raise CriuFailed(f"criu check fails on this kernel: {_reason(said)}")

    async def dump(self, pid: int, folder: Path, stop: Stop) -> None:
        """Write the tree of *pid* to *folder*; it stands still afterwards.

        SIGCONT lets it go on. Raises `CriuFailed`, also when *stop* was set; then it runs on.
        """
        arguments = ["dump", "--tree", str(pid), "--leave-stopped", *self._common(folder, "dump.log")]
        arguments += ["--ghost-limit", _NAMELESS]
        await self._checked(arguments, folder / "dump.log", stop=stop)

    async def end(self, folder: Path) -> None:
        """Kill a dump to *folder* that was begun by an agent that is no more."""
        await asyncio.to_thread(_kill_all, folder)

    async def restore(
        self, folder: Path, cgroups: Sequence[Path] = (), pipes: Mapping[str, int] | None = None
    ) -> int:
        """Bring a tree back and return its first process, a child of this one.

        It goes to *cgroups*, files named cgroup.procs; the descriptors in *pipes* take the place of the pipes
        named there. Process ids stay what they were; those that are taken just now are waited for. Raises
        `CriuFailed`.
        """
        pipes, log = pipes or {}, folder / "restore.log"
        arguments = ["restore", "--restore-detached", "--restore-sibling", "--pidfile", "pid"]
        arguments += self._common(folder, log.name)
        for name, descriptor in pipes.items():
            arguments += ["--inherit-fd", f"fd[{descriptor}]:{name}"]
        until = time.monotonic() + _TAKEN_S
        while True:
            _clear(folder / "pid")
            try:
                await self._checked(arguments, log, cgroups, list(pipes.values()))
                return _number_in(folder / "pid")
            except CriuFailed as error:
                if not _TAKEN.search(str(error)) or time.monotonic() > until:
                    raise
            await asyncio.sleep(_AGAIN_S)

    @staticmethod
    def _common(folder: Path, log: str) -> list[str]:
        plugins = folder / "no-plugins"  # criu fails if it is not there
        plugins.mkdir(exist_ok=True)
        paths = ["--images-dir", str(folder), "--libdir", str(plugins), "--log-file", log, "-v2"]
        return [*paths, "--tcp-close", "--file-locks", "--manage-cgroups=ignore"]

    async def _checked(
        self,
        arguments: Sequence[str],
        log: Path,
        cgroups: Sequence[Path] = (),
        descriptors: Sequence[int] = (),
        stop: Stop | None = None,
    ) -> None:
        code, said = await self._run(arguments, self._timeout_s, cgroups, descriptors, stop)
        if code != 0:
            said = f"{said}\n{_text(log)}"
            raise CriuFailed(f"criu {arguments[0]} failed: {_reason(said)}{_no_room(log.parent)}")

    async def _run(
        self,
        arguments: Sequence[str],
        limit_s: float,
        cgroups: Sequence[Path] = (),
        descriptors: Sequence[int] = (),
        stop: Stop | None = None,
    ) -> tuple[int, str]:
        """Return the exit code and what was said. Raises `CriuFailed` where there is no answer.

        One with a *stop*, which ends it early, only reads and writes: it may fail in its own time.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                *(_IN_CGROUPS if cgroups else ()),
                *map(str, cgroups),
                *(("--",) if cgroups else ()),
                self._program,
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                pass_fds=descriptors,
                restore_signals=stop is None,  # else SIGXFSZ stays ignored, as in Python: see `_choke`
            )
        except OSError as error:
            raise CriuFailed(
                f"{self._program} cannot be run ({error.strerror}); install criu 4.1 or later, or name it in "
                "[agent] criu"
            ) from None
        said = await _said(process, limit_s, stop)
        if said is None:
            late = f"criu {arguments[0]} gave no answer within {limit_s:g} s and was ended"
            raise CriuFailed(CANCELLED if stop is not None and stop.is_set() else late)
        return process.returncode or 0, said.decode(errors="replace")


async def _said(process: asyncio.subprocess.Process, limit_s: float, stop: Stop | None) -> bytes | None:
    """Return what *process* said until its end; nothing of one that was ended before."""
    said, over = asyncio.ensure_future(process.communicate()), asyncio.Event()
    said.add_done_callback(lambda _: over.set())
    late = asyncio.get_running_loop().call_later(limit_s, over.set)
    try:
        with stop.telling(over.set) if stop is not None else contextlib.nullcontext():
            await over.wait()
        if said.done():
            return said.result()[0]
        if stop is not None:
            _choke(process.pid)
            await asyncio.wait({said}, timeout=_FAILS_S)
        return None
    finally:
        late.cancel()
        if not said.done():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            said.cancel()


def _choke(pid: int) -> None:
    """Let a dump write no more: it fails, and takes what it has put into the processes out of them again.

    One that is killed leaves that there, and a process that was just about to run it does not survive.
    """
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, 0))


def _kill_all(folder: Path) -> None:
    """Kill what writes to *folder*, and wait until it has let go of the processes that it held."""
    for pid in processes.with_words("--images-dir", str(folder)):
        if processes.uid(pid) != os.getuid():
            continue  # anybody can give his process such words
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            try:
                os.killpg(pid, signal.SIGKILL)
                select.select([descriptor], [], [], _PROBE_S)
            finally:
                os.close(descriptor)


def _clear(path: Path) -> None:
    path.unlink(missing_ok=True)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _number_in(path: Path) -> int:
    return int(path.read_text())


def _no_room(folder: Path) -> str:
    """Return that *folder* is on a full disk, where it is: criu's log may have had no room either."""
    with contextlib.suppress(OSError):
        if (free := shutil.disk_usage(folder).free) < _ROOM:
            return f"; [agent] image_dir = {folder.parent} has {free} bytes left: make room there"
    return ""


def _reason(text: str) -> str:
    """Return the errors that explain a failure: the last ones."""
    errors = [
        line.partition("Error ")[2]
        for line in text.splitlines()
        if "Error " in line and not any(harmless in line for harmless in _HARMLESS)
    ]
    return "; ".join(errors[-_LAST_ERRORS:]) or text.strip()[-200:] or "it gave no reason"
