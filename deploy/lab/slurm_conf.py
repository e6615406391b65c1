"""The files that make the private Slurm: slurm.conf, gres.conf, cgroup.conf, fake device files."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.processes import LabError

LANES_SINCE = (23, 2)
COUNTED = "ilw"
PARTITION = "interleave"
# A number range for local use: no driver is behind it, and each file is a device of its own to the cgroups.
_DEVICE_MAJOR = 241
_CPUS, _MEMORY_MIB = 32, 64000
_CGROUPS = Path("/sys/fs/cgroup")
_CONTROLLERS = ("devices", "freezer", "memory", "cpuset")


def slurm_version(program: str = "slurmctld") -> tuple[int, int]:
    """Return (major, minor) of the installed Slurm. Raises `LabError` where there is none."""
    try:
        text = subprocess.run([program, "-V"], capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise LabError(f"no usable Slurm here: {program} -V: {error}") from error
    return parse_version(text)


def parse_version(text: str) -> tuple[int, int]:
    """Return (major, minor) from what `slurmctld -V` prints, such as "slurm-wlm 22.05.8"."""
    found = re.search(r"\b(\d+)\.(\d+)", text)
    if not found:
        raise LabError(f"{text!r} holds no Slurm release")
    return int(found[1]), int(found[2])


@dataclass(frozen=True)
class Layout:
    """What the private cluster consists of, and where its files lie."""

    root: Path
    nodes: tuple[str, ...]
    """Nodes of partition `interleave`, each with an agent."""
    plain_nodes: tuple[str, ...]
    """Nodes of the default partition `batch`, with ordinary `gpu` GRES."""
    devices: int
    """Fake GPUs of each node."""
    version: tuple[int, int]
    ports: dict[str, int]
    """TCP ports by daemon: `slurmctld`, `interleaved` and each node's name."""
    members: int = 2
    """How many jobs share a device."""
    cgroups: bool = False
    """Slurm keeps each job to its devices and its memory (cgroup v1); see `cgroups_missing`."""
    shards: bool = False
    """The shared GRES are Slurm's own shards."""
    counted: tuple[str, ...] = ()
    """Of `nodes`, those of a class of their own: one job more may share a device, by tokens called `ilw`."""

    @property
    def mode(self) -> str:
        """`shard` where that is asked for; else `lane` where this Slurm enforces lanes, else `token`."""
        if self.shards:
            return "shard"
        return "lane" if self.version >= LANES_SINCE else "token"

    @property
    def gres(self) -> list[str]:
        """The names of the shared GRES: one for each lane, or the token's, or `shard`."""
        if self.shards:
            return ["shard"]
        return [f"ilv{letter}" for letter in "abcdefgh"[: self.members]] if self.mode == "lane" else ["ilv"]

    @property
    def etc(self) -> Path:
        """Folder of all configuration."""
        return self.root / "etc"

    @property
    def log(self) -> Path:
        """Folder of all logs."""
        return self.root / "log"

    @property
    def munge_socket(self) -> Path:
        """Socket of the cluster's own munged."""
        return self.root / "munge" / "socket"

    def device(self, node: str, index: int) -> Path:
        """The device file of *node*'s GPU number *index*."""
        return self.root / "dev" / f"{node}-{index}"


def make_devices(layout: Layout) -> None:
    """Make the fake GPUs. Raises `LabError` where this user may not (root is needed)."""
    for number, node in enumerate((*layout.nodes, *layout.plain_nodes)):
        for index in range(layout.devices):
            path = layout.device(node, index)
            try:
                os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(_DEVICE_MAJOR, number * 16 + index))
            except OSError as error:
                raise LabError(f"{path}: the fake device cannot be made (root is needed): {error}") from error


def write(layout: Layout, ours: Mapping[str, str], more: Sequence[str] = ()) -> None:
    """Write all of Slurm's files; *ours*, options, and *more*, lines, go into slurm.conf too."""
    options = [f"{option}={value}" for option, value in ours.items()]
    lines = [*_base(layout), *options, *_nodes(layout), *more]
    (layout.etc / "slurm.conf").write_text("\n".join(lines) + "\n")
    (layout.etc / "gres.conf").write_text("\n".join(_gres(layout)) + "\n")
    (layout.etc / "cgroup.conf").write_text(_cgroup(layout))


def cgroups_missing() -> str:
    """Return why Slurm cannot use cgroups on this machine (`Cluster.start(cgroups=True)`), or empty text."""
    missing = [name for name in _CONTROLLERS if not (_CGROUPS / name / "cgroup.procs").exists()]
    return f"{_CGROUPS}: no controller of cgroup v1: {', '.join(missing)}" if missing else ""


def remove_cgroups(layout: Layout) -> None:
    """Remove the folders that slurmd leaves behind, where they hold no process."""
    for node in layout.nodes if layout.cgroups else ():
        for top in _CGROUPS.glob(f"*/slurm_{node}"):
            for folder in sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True):
                with contextlib.suppress(OSError):
                    folder.rmdir()
            with contextlib.suppress(OSError):
                top.rmdir()


def _cgroup(layout: Layout) -> str:
    if layout.cgroups:
        lines = [
            "CgroupPlugin=cgroup/v1",
            f"CgroupMountpoint={_CGROUPS}",
            "ConstrainDevices=yes",
            "ConstrainRAMSpace=yes",
        ]
        return "\n".join(lines) + "\n"
    return "CgroupPlugin=disabled\n" if layout.version >= (24, 11) else ""


def _base(layout: Layout) -> list[str]:
    host, root = socket.gethostname().partition(".")[0], layout.root
    return [
        "ClusterName=lab",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmctldPort={layout.ports['slurmctld']}",
        "SlurmUser=root",
        "SlurmdUser=root",
        "AuthType=auth/munge",
        f"AuthInfo=socket={layout.munge_socket}",
        f"StateSaveLocation={root}/state",
        f"SlurmdSpoolDir={root}/spool/%n",
        f"SlurmctldPidFile={root}/slurmctld.pid",
        f"SlurmdPidFile={root}/slurmd-%n.pid",
        f"SlurmctldLogFile={layout.log}/slurmctld.log",
        f"SlurmdLogFile={layout.log}/slurmd-%n.log",
        f"ProctrackType=proctrack/{'cgroup' if layout.cgroups else 'linuxproc'}",
        f"TaskPlugin=task/{'cgroup' if layout.cgroups else 'none'}",
        "MpiDefault=none",
        "SwitchType=switch/none",
        "ReturnToService=2",
        "SlurmdParameters=config_overrides",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "DefMemPerCPU=100",
        "PrologFlags=Alloc",
        "SchedulerParameters=bf_interval=1,bf_hetjob_prio=min,sched_interval=1,sched_min_interval=0,batch_sched_delay=0",
        "KillWait=2",
        "SlurmctldTimeout=30",
        # One machine runs all nodes, and may be busy with much else: who is late is not gone.
        "SlurmdTimeout=300",
        "MessageTimeout=30",
        "BatchStartTimeout=60",
        "GresTypes=" + ",".join([*layout.gres, *([COUNTED] if layout.counted else []), "gpu"]),
    ]


def _nodes(layout: Layout) -> list[str]:
    lines = [_node(layout, name, ",".join(_shared(layout, name))) for name in layout.nodes]
    lines += [_node(layout, name, f"gpu:sim:{layout.devices}") for name in layout.plain_nodes]
    if layout.nodes:
        names = ",".join(layout.nodes)
        lines.append(f"PartitionName={PARTITION} Nodes={names} Default=NO MaxTime=INFINITE State=UP")
    if layout.plain_nodes:
        names = ",".join(layout.plain_nodes)
        lines.append(f"PartitionName=batch Nodes={names} Default=YES MaxTime=INFINITE State=UP")
    return lines


def _shared(layout: Layout, node: str) -> list[str]:
    if node in layout.counted:
        return [f"{COUNTED}:g{index}:{layout.members + 1}" for index in range(layout.devices)]
    if layout.shards:
        gpus = [f"gpu:g{index}:1" for index in range(layout.devices)]
        return [*gpus, f"shard:{layout.members * layout.devices}"]
    seats = 1 if layout.mode == "lane" else layout.members
    return [f"{name}:g{index}:{seats}" for name in layout.gres for index in range(layout.devices)]


def _node(layout: Layout, name: str, gres: str) -> str:
    host = socket.gethostname().partition(".")[0]
    return (
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={layout.ports[name]} Sockets=1 "
        f"CoresPerSocket={_CPUS} ThreadsPerCore=1 RealMemory={_MEMORY_MIB} Feature=sim "
        f"Gres={gres} State=UNKNOWN"
    )


def _gres(layout: Layout) -> Sequence[str]:
    """One line a device, each with a type: Slurm loses or mixes its books otherwise."""
    lines = []
    for index in range(layout.devices):
        for node in layout.nodes:
            file = layout.device(node, index)
            if node in layout.counted:
                lines.append(f"NodeName={node} Name={COUNTED} Type=g{index} Count={layout.members + 1}")
                continue
            if layout.shards:
                lines.append(f"NodeName={node} Name=gpu Type=g{index} File={file}")
                lines.append(f"NodeName={node} Name=shard Count={layout.members} File={file}")
                continue
            what = f"File={file}" if layout.mode == "lane" else f"Count={layout.members}"
            lines += [f"NodeName={node} Name={name} Type=g{index} {what}" for name in layout.gres]
        for node in layout.plain_nodes:
            lines.append(f"NodeName={node} Name=gpu Type=sim File={layout.device(node, index)}")
    return lines
