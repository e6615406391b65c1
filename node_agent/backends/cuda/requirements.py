"""What the cuda backend needs of a node, as named reasons."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

_CUDA_12_8 = 12080
_API, _TOOL, _TOGGLE = (570,), (555,), (550,)
_CONSTRAINED, _MAPS = (575, 57, 8), (580,)


class Way(str, Enum):
    """How the driver is told."""

    FUNCTIONS = "functions"
    TOOL = "tool"
    TOGGLE = "toggle"  # by the same program


@dataclass(frozen=True)
class Facts:
    """What was found on the node. None: it cannot be known."""

    machine: str
    cuda_missing: str  # why libcuda cannot be used; empty: it can
    nvml_missing: str
    cuda_version: int  # 12080 is 12.8
    lacking: tuple[str, ...]  # functions that libcuda does not have
    driver: str  # as 580.95.05
    mig: tuple[str, ...]  # devices with MIG on
    not_persistent: tuple[str, ...]
    mps: bool
    constrained: bool | None  # ConstrainDevices of Slurm
    tool: str  # path of cuda-checkpoint; empty: there is none
    custom_storage: bool = False  # whether a helper may copy device memory itself


@dataclass(frozen=True)
class Reason:
    """Why it does not work: a name for scripts, and text for people."""

    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


MPS = Reason("mps", "the MPS control daemon runs; processes under it cannot be saved: stop it on this node")


def way(facts: Facts) -> Way:
    """Return how this node's driver is to be told, if at all."""
    if _version(facts.driver) >= _API or not facts.tool:
        return Way.FUNCTIONS
    return Way.TOOL if _version(facts.driver) >= _TOOL else Way.TOGGLE


def can_rename(driver: str) -> str:
    """Return why *driver* cannot restore a process on other devices; empty: it can."""
    if _version(driver) < _MAPS:
        return f"driver {driver} cannot move a process to other devices: 580 or later can"
    return ""


def can_map(facts: Facts) -> str:
    """Return why a context cannot come back on other devices of its node; empty: it can."""
    if why := can_rename(facts.driver):
        return why
    if facts.constrained is not False:
        return "ConstrainDevices shows a job its own devices alone, and the driver wants all of them named"
    return ""


def refusals(facts: Facts, *, stores: bool = False) -> list[Reason]:
    """Return all that must be mended before this node can serve; empty: it can.

    *stores*: files of ours are to hold the copies.
    """
    if facts.cuda_missing or facts.nvml_missing:
        said = facts.cuda_missing or facts.nvml_missing
        return [Reason("no_driver", f"the NVIDIA driver's libraries cannot be used: {said}")]
    found = [*_driver_reasons(facts)]
    if stores and not facts.custom_storage:
        text = f"[cuda] store needs driver 615 (CUDA 13.4), here is {facts.driver}: leave it out, or upgrade"
        found.append(Reason("no_custom_storage", text))
    if facts.machine != "x86_64":
        found.append(
            Reason("not_x86_64", f"the driver saves processes on x86_64 alone; here is {facts.machine}")
        )
    if facts.mig:
        text = f"MIG is on: {', '.join(facts.mig)}; the driver cannot save its processes: nvidia-smi -mig 0"
        found.append(Reason("mig", text))
    if facts.mps:
        found.append(MPS)
    if facts.not_persistent:
        text = f"persistence mode is off: {', '.join(facts.not_persistent)}; turn it on: nvidia-smi -pm 1"
        found.append(Reason("no_persistence_mode", text))
    return found


def saves_to_kill(facts: Facts) -> bool:
    """Tell whether a process that was restored is to be saved before it is killed (cuda-checkpoint#53)."""
    return _version(facts.driver)[:1] == (595,)


def cautions(facts: Facts) -> list[Reason]:
    """Return what may go wrong here, to be told and not refused."""
    found = []
    if facts.constrained is None and _version(facts.driver) < _CONSTRAINED:
        text = f"driver {facts.driver} and cgroup.conf not found: with ConstrainDevices it must be 575.57.08"
        found.append(Reason("constrain_devices_unknown", text))
    if way(facts) is Way.TOGGLE:
        text = (
            f"driver {facts.driver} can only toggle a process: jobs of one process are saved, and lost if "
            "that does not end in time; 570 or later is recommended"
        )
        found.append(Reason("driver_toggles", text))
    if way(facts) is not Way.FUNCTIONS:
        text = (
            f"driver {facts.driver} cannot save a process that uses NVML, as PyTorch does: 570 or later can"
        )
        found.append(Reason("no_nvml_in_jobs", text))
    if saves_to_kill(facts):
        text = "killing a restored job can hang the host on driver 595: use 580, or 610 and later"
        found.append(Reason("driver_595", text))
    return found


def environment_cautions(variables: dict[str, str]) -> list[str]:
    """Return the variables of a job's process that make the driver's checkpoint fail or hang."""
    return [
        f"{name}={variables.get(name, '(not set)')}"
        for name in ("NCCL_CUMEM_ENABLE", "NCCL_NVLS_ENABLE")
        if variables.get(name) != "0"
    ]


def _driver_reasons(facts: Facts) -> list[Reason]:
    have = _version(facts.driver)
    if way(facts) is Way.TOGGLE and have < _TOGGLE:
        text = f"driver {facts.driver} cannot save a process: 570 or later, or cuda-checkpoint from 550 on"
        return [Reason("driver_too_old", text)]
    if way(facts) is Way.FUNCTIONS and (facts.cuda_version < _CUDA_12_8 or facts.lacking or have < _API):
        text = (
            f"driver {facts.driver} (CUDA {facts.cuda_version // 1000}.{facts.cuda_version % 1000 // 10}) "
            "has no checkpoint functions: 570 or later, or the program cuda-checkpoint from 550 on"
        )
        return [Reason("driver_too_old", text)]
    if facts.constrained and have < _CONSTRAINED:
        text = f"driver {facts.driver}: jobs that see a part of the devices (ConstrainDevices) need 575.57.08"
        return [Reason("driver_too_old_for_constrain_devices", text)]
    return []


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))
