"""The cases of gpu_check.py: what the cuda backend does with real processes, and how long it takes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent.backends.cuda import helpers, requirements
from slurm_interleave.node_agent.backends.cuda.helpers import HelperLost, Helpers
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
TORCH_GOAL = 0.8  # of the speed of plain copies
_DEADLINE_S = 300.0
_NOT_HERE = 2  # exit code of snapshot_torch.py
Figures = dict[str, Any]


class Wrong(Exception):
    """Something is not as it must be; the text says what."""


class Skipped(Exception):
    """The case does not apply here; the text says why."""


class Process:
    """A process of the job under test."""

    def __init__(self, program: Path, memory: Sequence[str], environment: dict[str, str]) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, str(program), *memory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        self.pid = self.popen.pid
        if self.read() != "ready":
            raise Wrong(f"{program} {' '.join(memory)} did not start")

    def send(self, word: str) -> None:
        self.popen.stdin.write(word + "\n")
        self.popen.stdin.flush()

    def read(self) -> str:
        return self.popen.stdout.readline().strip()

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

    def moves_with(self, lock_timeout_s: float) -> Moves:
        return Moves(
            CudaConfig(lock_timeout_s=lock_timeout_s, headroom_mib=self.headroom_mib),
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
        names = {"INTERLEAVE_JOB_ID": JOB, "NCCL_CUMEM_ENABLE": "0", "NCCL_NVLS_ENABLE": "0"}
        self.processes.append(Process(self.program, memory, {**names, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}))
        return self.processes[-1]

    def end(self) -> None:
        for process in self.processes:
            process.popen.kill()
            process.popen.communicate()
        self.processes.clear()
        self.moves.forget(JOB)

    async def save(self, devices: Sequence[int] = (), *, good: bool = True) -> tuple[Outcome, float]:
        start = time.monotonic()
        outcome = await self.moves.snapshot(Target(JOB, tuple(devices or self.devices), _DEADLINE_S))
        if good and (not outcome.ok or outcome.context is not Context.SAVED):
            raise Wrong(f"snapshot: {outcome}")
        return outcome, time.monotonic() - start

    async def bring(self, devices: Sequence[int] = ()) -> tuple[Outcome, float]:
        start = time.monotonic()
        outcome = await self.moves.restore(Target(JOB, tuple(devices or self.devices), _DEADLINE_S))
        if not outcome.ok or outcome.context is not Context.RESIDENT:
            raise Wrong(f"restore: {outcome}")
        return outcome, time.monotonic() - start

    async def state(self, pid: int) -> tuple[int, int]:
        return await self.helpers.ask("state", 5, fresh=True, pid=pid)


async def one_process(stand: Stand, mib: int) -> Figures:
    """Save and bring back one process three times; the first starts the helpers."""
    process = stand.start(f"{stand.devices[0]}:{mib}")
    before, memory = process.ask("hash"), host_memory(process.pid)
    rounds = []
    for number in range(3):
        saved, out_s = await stand.save()
        if number == 0:
            away = host_memory(process.pid)
        _, in_s = await stand.bring()
        gib = saved.moved / 2**30
        rounds.append({"out_s": out_s, "in_s": in_s, "out_gib_s": gib / out_s, "in_gib_s": gib / in_s})
    if process.ask("hash") != before:
        raise Wrong("the memory is not what it was")
    grown = {name: away[name] - memory[name] for name in memory if name in away}
    # None: this process is in no memory cgroup of its own, as the root cgroup is none.
    charged = grown["cgroup"] / saved.moved if "cgroup" in grown else None
    return {
        "bytes": saved.moved,
        "rounds": rounds,
        "host_memory_grows_by": grown,
        "charged_to_cgroup": charged,
    }


async def small(stand: Stand) -> Figures:
    return await one_process(stand, stand.mib(64))


async def large(stand: Stand) -> Figures:
    free = next(gpu.free for gpu in stand.gpus.values() if gpu.index == stand.devices[0])
    return await one_process(stand, int(free * stand.share) // MIB)


async def pinned_memory(stand: Stand) -> Figures:
    """How fast a plain copy to pinned memory is, which the driver's own copy is to be held against."""
    out, back = stand.start(f"{stand.devices[0]}:{stand.mib(2048)}").ask("bandwidth").split()
    return {"out_gib_s": int(out) / 2**30, "in_gib_s": int(back) / 2**30}


async def torch_backend(stand: Stand) -> Figures:
    """The torch backend's copies, which must be as fast as plain ones to and from pinned memory, all but."""
    program = Path(__file__).with_name("snapshot_torch.py")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(program),
        f"--mib={stand.mib(4096)}",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, said = await process.communicate()
    if process.returncode == _NOT_HERE:
        raise Skipped(said.decode().strip())
    if process.returncode != 0:
        raise Wrong(f"{program.name}: {said.decode()[-300:]}")
    figures: Figures = json.loads(out)
    for ratio in ("suspend_over_copy", "resume_over_copy"):
        if figures[ratio] < TORCH_GOAL:
            raise Wrong(f"{ratio} is {figures[ratio]}, and must be {TORCH_GOAL}: {out.decode().strip()}")
    return figures


async def two_on_each_device(stand: Stand) -> Figures:
    """Wall time of two processes on each device, beside that of one device alone."""
    mib = stand.mib(2048)
    times = []
    for devices in (stand.devices[:1], stand.devices):
        ranks = [stand.start(f"{device}:{mib}") for device in devices for _ in range(2)]
        before = [rank.ask("hash") for rank in ranks]
        (_, out_s), (_, in_s) = await stand.save(), await stand.bring()
        if [rank.ask("hash") for rank in ranks] != before:
            raise Wrong("the memory is not what it was")
        times.append({"devices": len(devices), "out_s": out_s, "in_s": in_s})
        stand.end()
    return {"times": times, "all_over_one": times[1]["out_s"] / times[0]["out_s"]}


async def calls_wait_and_threads_go_on(stand: Stand) -> Figures:
    process = stand.start(f"{stand.devices[0]}:4")
    before, ticks = process.ask("hash"), int(process.ask("ticks"))
    await stand.save()
    await asyncio.sleep(0.5)
    more = int(process.ask("ticks")) - ticks
    process.send("hash")
    answer = asyncio.create_task(asyncio.to_thread(process.read))
    await asyncio.sleep(0.5)
    early = answer.done()
    await stand.bring()
    if early or await answer != before:
        raise Wrong("a call came back while the process was saved, or with something else")
    return {"ticks_while_saved": more}


async def endless_work(stand: Stand) -> Figures:
    """A process whose work never ends is not saved, and runs on."""
    process = stand.start(f"{stand.devices[0]}:4")
    process.ask("busy")
    start = time.monotonic()
    target = Target(JOB, tuple(stand.devices), _DEADLINE_S)
    outcome = await stand.moves_with(lock_timeout_s=2).snapshot(target)
    seconds = time.monotonic() - start
    if outcome.context is not Context.RESIDENT:
        raise Wrong(f"it was not left running: {outcome}")
    code, state = await stand.state(process.pid)
    return {
        "seconds": seconds,
        "context": outcome.context.value,
        "error": outcome.error,
        "state": [code, state],
    }


async def forked_child(stand: Stand) -> Figures:
    """Whether memory comes free though a child that was forked keeps the device's files open."""
    process = stand.start(f"{stand.devices[0]}:4")
    child = int(process.ask("fork"))
    try:
        outcome, seconds = await stand.save(good=False)
    finally:
        os.kill(child, signal.SIGKILL)
    return {"context": outcome.context.value, "error": outcome.error, "seconds": seconds}


async def other_device(stand: Stand) -> Figures:
    if len(stand.devices) < 2:
        raise Skipped("there is one device only")
    if reason := requirements.can_map(stand.facts):
        raise Skipped(reason)
    first, second = stand.devices[:2]
    process = stand.start(f"{first}:4")
    before = process.ask("hash")
    await stand.save([first])
    _, in_s = await stand.bring([second])
    await stand.sight.look()
    places = [gpu.index for gpu in stand.sight.gpus.values() if process.pid in gpu.users]
    if process.ask("hash") != before or places != [second]:
        raise Wrong(f"the memory is not what it was, or not on device {second}: {places}")
    return {"in_s": in_s}


async def killed_helper(stand: Stand) -> Figures:
    """What the driver says of a process whose caller was killed in the middle of a checkpoint."""
    process = stand.start(f"{stand.devices[0]}:{stand.mib(4096)}")
    await stand.helpers.ask("lock", 40, pid=process.pid, timeout_ms=30_000)
    with contextlib.suppress(HelperLost):
        await stand.helpers.ask("checkpoint", 0.2, pid=process.pid)
    try:
        code, state = await stand.state(process.pid)
    except HelperLost:
        return {"state": "no answer"}
    return {"state": [code, state]}


CASES = (
    small,
    pinned_memory,
    torch_backend,
    large,
    two_on_each_device,
    calls_wait_and_threads_go_on,
    other_device,
    forked_child,
    endless_work,
    killed_helper,
)


def host_memory(pid: int) -> dict[str, int]:
    """Return the resident memory of a process, and what is charged to its cgroup, in bytes."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    found = {name: int(status[name].split()[0]) * 1024 for name in ("VmRSS", "RssAnon", "RssShmem")}
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
