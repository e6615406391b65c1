"""The stand of gpu_cases.py: the processes of a job, the backend's moves of it, its host memory."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent import host_memory as limits
from slurm_interleave.node_agent.backends.cuda import helpers, requirements
from slurm_interleave.node_agent.backends.cuda.helpers import Helpers
from slurm_interleave.node_agent.backends.cuda.moves import Moves
from slurm_interleave.node_agent.backends.cuda.records import Records
from slurm_interleave.node_agent.backends.cuda.requirements import Facts, Way
from slurm_interleave.node_agent.backends.cuda.settings import CudaConfig
from slurm_interleave.node_agent.backends.cuda.sight import Gpu, Sight
from slurm_interleave.node_agent.backends.protocol import Target
from slurm_interleave.node_agent.contexts import Outcome
from slurm_interleave.node_agent.job_processes import Owner

JOB = "gpu-check"
MIB = 1 << 20
DEADLINE_S = 300.0
END_S = 30.0  # for the kernel to end a process that was killed


class Wrong(Exception):
    """Something is not as it must be; the text says what."""


class Skipped(Exception):
    """The case does not apply here; the text says why."""


class Process:
    """A process of the job under test, which answers within *answer_s* seconds."""

    def __init__(
        self, program: Path, memory: Sequence[str], environment: dict[str, str], answer_s: float
    ) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, str(program), *memory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        self.pid = self.popen.pid
        self._answer_s = answer_s
        try:
            self.read()
        except Wrong as error:
            self.end()
            raise Wrong(f"{program} {' '.join(memory)} did not start: {error}") from None

    def end(self) -> None:
        self.popen.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # the driver keeps it, and the others go on
            self.popen.communicate(timeout=END_S)

    def send(self, word: str) -> None:
        self.popen.stdin.write(word + "\n")
        self.popen.stdin.flush()

    def read(self) -> str:
        """Return its next line. Raises `Wrong`: after a restore a call may hang for good."""
        came, _, _ = select.select([self.popen.stdout], [], [], self._answer_s)
        if not came:
            raise Wrong(f"process {self.pid} gave no answer within {self._answer_s:g} s")
        if not (line := self.popen.stdout.readline()):
            raise Wrong(f"process {self.pid} has ended")
        return line.strip()

    def ask(self, word: str) -> str:
        self.send(word)
        answer = self.read()
        if answer.startswith("unknown:"):
            raise Skipped(f"this program has no {word}")
        return answer


@dataclass
class Stand:
    """What the cases work with."""

    facts: Facts
    gpus: dict[str, Gpu]
    program: Path
    folder: Path
    headroom_mib: int
    share: float  # of a device's free memory that the large case takes
    host_share: float  # of the free host memory that its copy may take
    answer_s: float  # for a process to answer
    processes: list[Process] = field(default_factory=list)

    def __post_init__(self) -> None:
        way = requirements.way(self.facts)
        program = "" if way is Way.FUNCTIONS else self.facts.tool
        command = helpers.command(program, toggles=way is Way.TOGGLE)
        self.helpers = Helpers(command, len(self.gpus) + 1, self.folder / "helpers")
        self.sight = Sight(self.helpers, self.gpus)
        self.records = Records(self.folder / "cuda.json")
        self.moves = self.moves_with(lock_timeout_s=30)
        self.devices = sorted(gpu.index for gpu in self.gpus.values())

    def moves_with(self, lock_timeout_s: float, store: str = "") -> Moves:
        return Moves(
            CudaConfig(lock_timeout_s=lock_timeout_s, headroom_mib=self.headroom_mib, store=store),
            self.helpers,
            self.sight,
            self.records,
            lambda: {JOB: Owner(os.getuid())},
            self.facts,
        )

    def mib(self, wanted: int) -> int:
        """Return *wanted*, or less where devices are tiny."""
        return min(wanted, next(iter(self.gpus.values())).total // MIB // 16)

    def start(self, *memory: str) -> Process:
        """Start a process that has *memory*, DEVICE:MIB each; CUDA counts devices by its own order."""
        places = {gpu.index: uuid for uuid, gpu in self.gpus.items()}
        names = {
            "INTERLEAVE_JOB_ID": JOB,
            "NCCL_CUMEM_ENABLE": "0",
            "NCCL_NVLS_ENABLE": "0",
            "CUDA_VISIBLE_DEVICES": ",".join(places[index] for index in self.devices),
        }
        split = (words.split(":") for words in memory)
        counted = [f"{self.devices.index(int(device))}:{mib}" for device, mib in split]
        self.processes.append(Process(self.program, counted, names, self.answer_s))
        return self.processes[-1]

    async def end(self) -> None:
        """Kill the processes; saved before, where the host would hang else."""
        if self.processes and requirements.saves_to_kill(self.facts):
            await self.moves.snapshot(Target(JOB, tuple(self.devices), DEADLINE_S))
        for process in self.processes:
            process.end()
        self.processes.clear()
        self.moves.forget(JOB)

    async def save(self, devices: Sequence[int] = (), *, good: bool = True) -> tuple[Outcome, float]:
        start = time.monotonic()
        outcome = await self.moves.snapshot(Target(JOB, tuple(devices or self.devices), DEADLINE_S))
        if good and (not outcome.ok or outcome.context is not Context.SAVED):
            raise Wrong(f"snapshot: {outcome}")
        return outcome, time.monotonic() - start

    async def bring(self, devices: Sequence[int] = ()) -> tuple[Outcome, float]:
        start = time.monotonic()
        outcome = await self.moves.restore(Target(JOB, tuple(devices or self.devices), DEADLINE_S))
        if not outcome.ok or outcome.context is not Context.RESIDENT:
            raise Wrong(f"restore: {outcome}")
        return outcome, time.monotonic() - start

    async def state(self, pid: int) -> tuple[int, int]:
        return await self.helpers.ask("state", 5, fresh=True, pid=pid)


def host_room() -> int:
    """Return how many bytes of host memory a process of ours may take still."""
    return min([limits.of_node().available, *(each.free for each in limits.of_job([os.getpid()]))])


def host_memory(pid: int) -> dict[str, int]:
    """Return the resident memory of a process, and what is charged to its cgroup, in bytes."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    names = ("VmRSS", "RssAnon", "RssShmem")
    found = {name: int(status[name].split()[0]) * 1024 for name in names if name in status}
    for path in _memory_files(pid):
        with contextlib.suppress(OSError, ValueError):
            found["cgroup"] = int(path.read_text())
            rows = (row.split() for row in path.with_name("memory.stat").read_text().splitlines())
            found |= {f"cgroup_{name}": int(size) for name, size in rows if name in _KINDS}
    return found


# Of memory.stat: what is charged may be none of the process's own pages.
_KINDS = (
    "anon",
    "file",
    "shmem",
    "unevictable",
    "total_rss",
    "total_cache",
    "total_shmem",
    "total_unevictable",
)


def _memory_files(pid: int) -> Iterator[Path]:
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield Path("/sys/fs/cgroup") / path.lstrip("/") / "memory.current"
        elif "memory" in controllers.split(","):
            yield Path("/sys/fs/cgroup/memory") / path.lstrip("/") / "memory.usage_in_bytes"
