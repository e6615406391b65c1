"""What is seen of the devices: their memory, and who uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from slurm_interleave.node_agent.backends.cuda.helpers import Helpers
from slurm_interleave.node_agent.processes import Process

_NVML_S = 10.0
_EVERY_S = 0.05
_MOSTLY = 0.95  # of what a process had: the driver frees in pieces


@dataclass(frozen=True)
class Gpu:
    """One device; sizes in bytes.

    *users* maps process ids to theirs, None where NVML does not know; *working* are those that compute.
    *load* is the share of the time in which anything did, in percent; None where NVML does not say.
    """

    index: int
    uuid: str
    name: str
    total: int
    free: int
    used: int
    users: Mapping[int, int | None]
    working: frozenset[int] = frozenset()
    load: int | None = None


def parse(raw: Iterable[Mapping[str, Any]]) -> dict[str, Gpu]:
    """Return what a helper said of the devices, by UUID."""
    return {
        row["uuid"]: Gpu(
            row["index"],
            row["uuid"],
            row["name"],
            row["total"],
            row["free"],
            row["used"],
            dict(row["processes"]),
            frozenset(row["working"]),
            row["load"],
        )
        for row in raw
    }


def by_device(sizes: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the bytes on each device of several processes."""
    total: dict[str, int] = {}
    for used in sizes:
        for uuid, size in used.items():
            total[uuid] = total.get(uuid, 0) + size
    return total


class Sight:
    """Looks at the devices through a helper."""

    def __init__(self, helpers: Helpers, gpus: dict[str, Gpu]) -> None:
        """Begin with what was seen at the start."""
        self._helpers = helpers
        self.gpus = gpus

    async def look(self) -> dict[str, Gpu]:
        """Look now. Raises `HelperLost` and `HelperUnusable`."""
        _, raw = await self._helpers.ask("devices", _NVML_S)
        self.gpus = parse(raw)
        return self.gpus

    def used_by(self, pid: int) -> dict[str, int | None]:
        """Return what a process has on each device that it is listed on, as last seen."""
        return {gpu.uuid: gpu.users[pid] for gpu in self.gpus.values() if pid in gpu.users}

    def sizes(self, processes: Iterable[Process]) -> dict[int, dict[str, int]]:
        """Return what each has on each device by its pid, of those where NVML knows."""
        listed = {process.pid: self.used_by(process.pid) for process in processes}
        return {
            pid: {uuid: size or 0 for uuid, size in used.items()}
            for pid, used in listed.items()
            if used and None not in used.values()
        }

    async def wait_freed(
        self, before: Mapping[str, Gpu], held: Mapping[str, int], pids: set[int], within_s: float
    ) -> str:
        """Wait until what *pids* *held* is free again, in two looks one after the other; return why not.

        A success that the driver reports is no proof: memory can be freed later, or never.
        """
        last, good = asyncio.get_running_loop().time() + within_s, 0
        while True:
            now = await self.look()
            why = _not_freed(before, now, held, pids)
            good = 0 if why else good + 1
            if good == 2:
                return ""
            if asyncio.get_running_loop().time() > last:
                return f"memory_not_released: after {within_s:g} s {why}" if why else ""
            await asyncio.sleep(_EVERY_S)

    async def wait_room(self, needed: Mapping[str, int], headroom: int, within_s: float) -> str:
        """Wait until each device has *needed* bytes and *headroom* free; return why not."""
        last = asyncio.get_running_loop().time() + within_s
        while True:
            now = await self.look()
            if lost := [uuid for uuid in needed if uuid not in now]:
                return f"device_lost: NVML does not find {', '.join(lost)} any more"
            short = [
                f"device {now[uuid].index} has {now[uuid].free} bytes free, {size} and {headroom} to spare "
                f"are needed; on it are {_named(now[uuid])}"
                for uuid, size in needed.items()
                if now[uuid].free < size + headroom
            ]
            if not short:
                return ""
            if asyncio.get_running_loop().time() > last:
                return "no_room: " + "; ".join(short)
            await asyncio.sleep(_EVERY_S)


def _not_freed(
    before: Mapping[str, Gpu], now: Mapping[str, Gpu], held: Mapping[str, int], pids: set[int]
) -> str:
    for uuid, gpu in now.items():
        if left := sorted(pids & {pid for pid, size in gpu.users.items() if size != 0}):
            return f"process {left[0]} is on device {gpu.index} still"
        freed = gpu.free - before[uuid].free if uuid in before else 0
        if freed < _MOSTLY * held.get(uuid, 0):
            size = held[uuid]
            return f"{max(freed, 0)} of {size} bytes of device {gpu.index} are free; on it are {_named(gpu)}"
    return ""


def _named(gpu: Gpu) -> str:
    if not gpu.users:
        return "no processes that NVML knows"
    return ", ".join(
        f"process {pid} ({'unknown' if size is None else size} bytes)" for pid, size in gpu.users.items()
    )
