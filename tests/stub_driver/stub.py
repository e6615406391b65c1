"""The stub of NVIDIA's driver, from the tests' side: what it has, how it fails, what was asked of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MIB = 1 << 20
RUNNING, LOCKED, CHECKPOINTED, FAILED, CHECKPOINTING, RESTORING = range(6)


def build(folder: Path) -> Path:
    """Compile the libraries into *folder*."""
    subprocess.run(["make", "--quiet", "-C", str(HERE), f"OUT={folder}"], check=True, capture_output=True)
    return folder


class Process:
    """A process of a job."""

    def __init__(self, popen: subprocess.Popen[str]) -> None:
        self.popen = popen
        self.pid = popen.pid
        assert self._line() == "ready"

    def begin(self, words: str) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(words + "\n")
        self.popen.stdin.flush()

    def end(self) -> str:
        return self._line()

    def ask(self, words: str) -> str:
        self.begin(words)
        return self.end()

    def kill(self) -> None:
        self.popen.kill()
        self.popen.communicate()

    def _line(self) -> str:
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().strip()


@dataclass(frozen=True)
class Asked:
    """One call that the driver was asked, in milliseconds of the clock; *code* None: it has not ended."""

    op: str
    pid: int
    begun_ms: int
    caller: int
    ended_ms: int = 0
    code: int | None = None
    arguments: str = ""


class Stub:
    """One node's driver and devices."""

    def __init__(self, folder: Path, libraries: Path, devices: int = 4, mib: int = 64) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.environment = {"STUB_DIR": str(folder), "LD_LIBRARY_PATH": str(libraries)}
        self.uuids = [f"GPU-{uuid.UUID(int=0xC0DE << 112 | index)}" for index in range(devices)]
        rows = [f"{name} {mib * MIB} {MIB}\n" for name in self.uuids]
        (folder / "gpus").write_text("".join(rows))
        self._settings: dict[str, Any] = {}
        self._jobs: list[Process] = []

    def set(self, **settings: Any) -> None:
        self._settings.update(settings)
        (self.folder / "settings").write_text("".join(f"{k} {v}\n" for k, v in self._settings.items()))

    def fault(
        self,
        op: str,
        code: int,
        *,
        pid: int = 0,
        delay_ms: int = 0,
        after: bool = False,
        state: int = -1,
        count: int = 1,
    ) -> None:
        """Make the next *count* calls of *op* fail; *delay_ms* -1 of a lock: as long as its own limit.

        *after*: it does what it should, and then waits and fails.
        """
        with (self.folder / "faults").open("a") as file:
            when = "after" if after else "before"
            file.write(f"{op} {pid} {when} {code} {delay_ms} {state} {count}\n")

    def nvml_says(self, pid: int, what: str) -> None:
        """Make NVML say of this process: zero, none (it does not know) or hidden."""
        (self.folder / f"nvml.{pid}").write_text(what)

    def works(self, pid: int) -> None:
        """Make NVML say that this process computes, from now on."""
        (self.folder / f"works.{pid}").touch()

    def start(self, job: str, *memory: str, **variables: str) -> Process:
        """Start a process of *job* with *memory* DEVICE:MIB each."""
        environment = {
            **os.environ,
            **self.environment,
            "INTERLEAVE_JOB_ID": job,
            "STUB_JOB": "1",
            "NCCL_CUMEM_ENABLE": "0",
            "NCCL_NVLS_ENABLE": "0",
            **variables,
        }
        popen = subprocess.Popen(
            [sys.executable, str(HERE / "job.py"), *memory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        process = Process(popen)
        self._jobs.append(process)
        return process

    def state(self, pid: int) -> int:
        return int((self.folder / f"proc.{pid}").read_text().split()[0])

    def bytes(self, pid: int) -> dict[int, int]:
        """Return what a process has, or had when it was saved, by device."""
        rows = (self.folder / f"proc.{pid}").read_text().splitlines()[1:]
        return {int(device): int(size) for device, size in (row.split() for row in rows)}

    def on_device(self, pid: int) -> int:
        """Return how many bytes of a process really are in device memory."""
        return (self.folder / f"vram.{pid}").stat().st_size

    def asked(self, op: str = "", pid: int = 0) -> list[Asked]:
        return [call for call in self._asked() if op in ("", call.op) and pid in (0, call.pid)]

    def wait_until_asked(self, op: str, pid: int) -> None:
        """Wait until a call has begun."""
        _wait(lambda: bool(self.asked(op, pid)), f"no {op} of {pid}")

    def _asked(self) -> Iterator[Asked]:
        under_way: dict[tuple[str, int], Asked] = {}
        path = self.folder / "calls"
        for line in path.read_text().splitlines() if path.exists() else ():
            kind, op, pid, *rest = line.split()
            key = op, int(pid)
            if kind == "begin":
                if key in under_way:
                    yield under_way[key]
                under_way[key] = Asked(*key, begun_ms=int(rest[0]), caller=int(rest[1]))
            else:
                code, ended_ms, arguments = rest
                yield replace(under_way.pop(key), code=int(code), ended_ms=int(ended_ms), arguments=arguments)
        yield from under_way.values()

    def close(self) -> None:
        for process in self._jobs:
            process.kill()


def _wait(so: Callable[[], bool], otherwise: str) -> None:
    limit = time.monotonic() + 15
    while not so():
        assert time.monotonic() < limit, f"{otherwise} after 15 s"
        time.sleep(0.005)
