"""The cases of gpu_check.py: what the cuda backend does with real processes, and how long it takes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

from gpu_stand import DEADLINE_S, JOB, MIB, Skipped, Stand, Wrong, host_memory, host_room

from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent.backends.cuda import requirements
from slurm_interleave.node_agent.backends.cuda.helpers import HelperLost
from slurm_interleave.node_agent.backends.protocol import Target

TORCH_GOAL = 0.8  # of the speed of plain copies
CONTEXT_MIB = 1024  # what a process has on a device beside its tensors, at most
_NOT_HERE = 2  # exit code of snapshot_torch.py
Figures = dict[str, Any]


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
    """As much as the device has, and as a copy finds room for: one that does not is killed in the middle."""
    free = next(gpu.free for gpu in stand.gpus.values() if gpu.index == stand.devices[0])
    room = host_room()
    size = min(free * stand.share, room * stand.host_share)
    return {**await one_process(stand, max(1, int(size) // MIB)), "host_room": room}


async def own_store(stand: Stand) -> Figures:
    """The same with copies by helpers, into memory of ours."""
    if not stand.facts.custom_storage:
        raise Skipped("no_custom_storage: it begins with driver 615")
    mib, free = stand.mib(4096), shutil.disk_usage(stand.folder).free
    if free < (mib + CONTEXT_MIB) * MIB:
        raise Skipped(f"{stand.folder} has {free} bytes free, too little for a copy (docker: --shm-size)")
    drivers, stand.moves = stand.moves, stand.moves_with(lock_timeout_s=30, store=str(stand.folder))
    try:
        return await one_process(stand, mib)
    finally:
        await stand.end()
        stand.moves = drivers


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
        await stand.end()
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
    target = Target(JOB, tuple(stand.devices), DEADLINE_S)
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


async def cancelled(stand: Stand) -> Figures:
    """A snapshot that is told to stop while it is under way leaves the process running."""
    process = stand.start(f"{stand.devices[0]}:{stand.mib(2048)}")
    before = process.ask("hash")
    for after_s in (0.05, 0.0):  # the second, where the first came too late: everything was saved by then
        target = Target(JOB, tuple(stand.devices), DEADLINE_S)
        moving = asyncio.create_task(stand.moves.snapshot(target))
        await asyncio.sleep(after_s)
        start = time.monotonic()
        target.stop.set()
        outcome = await moving
        seconds = time.monotonic() - start
        if outcome.context is not Context.SAVED:
            break
        await stand.bring()
    if outcome.context is not Context.RESIDENT or process.ask("hash") != before:
        raise Wrong(f"it was not left as it was: {outcome}")
    return {"seconds": seconds, "error": outcome.error}


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
    # In a container NVML may list no process.
    if process.ask("hash") != before or (places and places != [second]):
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
    own_store,
    large,
    two_on_each_device,
    calls_wait_and_threads_go_on,
    other_device,
    forked_child,
    cancelled,
    endless_work,
    killed_helper,
)
