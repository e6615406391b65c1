"""A private Slurm cluster in a scratch folder: own MUNGE, free ports, several nodes on this one host."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lab import accounting as lab_accounting
from lab import hooks, interleave_conf, slurm_conf
from lab.base import Lab
from lab.databases import MariaDB
from lab.interleave_conf import SimSettings
from lab.jobs import SlurmJobs
from lab.processes import Daemon, LabError, free_ports, wait_until
from lab.scratch import Scratch
from lab.slurm_conf import Layout
from slurm_interleave.client.sim.arena import Arena
from slurm_interleave.client.sim.settings import SimConfig

_PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "scontrol", "squeue", "scancel", "sinfo")
_NODES_S = 60.0


class Cluster(Lab, SlurmJobs):
    """A running cluster; `Cluster.start` makes one and ends it."""

    def __init__(self, scratch: Scratch, layout: Layout) -> None:
        env = {**scratch.environment(), "SLURM_CONF": str(layout.etc / "slurm.conf")}
        Lab.__init__(self, scratch, env)
        SlurmJobs.__init__(self, env, scratch.root / "out")
        self.layout = layout

    @classmethod
    @contextlib.contextmanager
    def start(
        cls,
        root: Path | None = None,
        *,
        nodes: Sequence[str] = ("n1", "n2"),
        plain_nodes: Sequence[str] = ("n3",),
        devices: int = 2,
        members: int = 2,
        sim: SimSettings | None = None,
        interleave: bool = True,
        cgroups: bool = False,
        shards: bool = False,
        counted: Sequence[str] = (),
        config: Mapping[str, Mapping[str, Any]] | None = None,
        slurm: Sequence[str] = (),
        accounting: MariaDB | None = None,
    ) -> Iterator[Cluster]:
        """Start a cluster under *root* (default: a new temporary folder) and end it with the context.

        Of *nodes* to *members*, and of *cgroups*, *shards* and *counted*, `Layout` says what they are. With
        *interleave*, `interleaved` and one agent a node run too, and *config* is added to the tables of
        their configuration. *slurm* is added to slurm.conf. With *accounting* a slurmdbd runs too, with its
        data there. Raises `LabError` with the end of the log of what did not start.
        """
        if reason := why_not():
            raise LabError(reason)
        with Scratch(root) as scratch:
            version, ports = slurm_conf.slurm_version(), _ports(*nodes, *plain_nodes)
            shared = members, cgroups, shards, tuple(counted)
            layout = Layout(scratch.root, tuple(nodes), tuple(plain_nodes), devices, version, ports, *shared)
            cluster = cls(scratch, layout)
            more = [*slurm, *(lab_accounting.lines(layout) if accounting else ())]
            cluster._write(sim or SimSettings(), interleave, config or {}, more)
            try:
                cluster._launch(interleave, accounting)
                yield cluster
            finally:
                cluster.stop_all()
                slurm_conf.remove_cgroups(layout)

    def _write(
        self,
        sim: SimSettings,
        interleave: bool,
        config: Mapping[str, Mapping[str, Any]],
        slurm: Sequence[str],
    ) -> None:
        layout = self.layout
        slurm_conf.make_devices(layout)
        slurm_conf.write(layout, hooks.install(layout) if interleave else {}, slurm)
        for node in layout.plain_nodes:  # the others' are made by their agents
            folder = self.scratch.sim / node
            Arena.open(folder, SimConfig(directory=folder, devices=layout.devices, **asdict(sim)))
        tables = interleave_conf.sections(
            self.scratch, layout.ports["interleaved"], layout.devices, sim, layout.munge_socket
        )
        tables["placement"] = {
            "enabled": True,
            "mode": layout.mode,
            "gres": layout.gres,
            "members": layout.members,
            "poll_s": 0.5,
            "compare_s": 1.0,
            "partition": slurm_conf.PARTITION,
        }
        if layout.counted:
            tables["node_classes.counted"] = {
                "nodes": ",".join(layout.counted),
                "mode": "token",
                "gres": [slurm_conf.COUNTED],
                "members": layout.members + 1,
            }
        interleave_conf.write(self.config, tables, config)

    def _launch(self, interleave: bool, accounting: MariaDB | None) -> None:
        self.launch([self._munged()])
        if accounting is not None:
            self.launch([lab_accounting.daemon(self.layout, accounting, self.env, _listens)])
        every = (*self.layout.nodes, *self.layout.plain_nodes)
        daemons = [self._slurmctld(), *(self._slurmd(node) for node in every)]
        if interleave:
            daemons += interleave_conf.daemons(self.scratch, self.layout.nodes, self.env)
        self.launch(daemons)
        if not wait_until(self._nodes_idle, _NODES_S, poll_s=0.1):
            raise LabError(
                f"the nodes are not ready:\n{self.command('sinfo', '-N')}\n{self.logs('slurmctld')}"
            )

    def _munged(self) -> Daemon:
        folder = self.root / "munge"
        (folder / "key").write_bytes(secrets.token_bytes(128))
        (folder / "key").chmod(0o400)
        argv = [_program("munged"), "--foreground", f"--key-file={folder}/key", f"--socket={folder}/socket"]
        argv += [f"--pid-file={folder}/pid", f"--log-file={folder}/log", f"--seed-file={folder}/seed"]
        log = self.layout.log / "munged.out"
        return Daemon("munged", argv, log, self.env, lambda: _answers(folder / "socket"), [folder / "log"])

    def _slurmctld(self) -> Daemon:
        argv = [_program("slurmctld"), "-D", "-f", self.env["SLURM_CONF"]]
        logs = self.layout.log
        port = self.layout.ports["slurmctld"]
        log = logs / "slurmctld.out"
        return Daemon("slurmctld", argv, log, self.env, lambda: _listens(port), [logs / "slurmctld.log"])

    def _slurmd(self, node: str) -> Daemon:
        argv = [_program("slurmd"), "-D", "-N", node, "-f", self.env["SLURM_CONF"]]
        logs, name = self.layout.log, f"slurmd-{node}"
        port = self.layout.ports[node]
        return Daemon(
            name, argv, logs / f"{name}.out", self.env, lambda: _listens(port), [logs / f"{name}.log"]
        )

    def _nodes_idle(self) -> bool:
        states = self.command("sinfo", "--noheader", "--Node", "--format=%T").split()
        return set(states) == {"idle"}


def _ports(*nodes: str) -> dict[str, int]:
    """Return a free port for each daemon."""
    names = ("slurmctld", "interleaved", "slurmdbd", *nodes)
    return dict(zip(names, free_ports(len(names)), strict=True))


def why_not() -> str:
    """Return why no private Slurm can run on this machine, or empty text."""
    missing = [name for name in _PROGRAMS if not _program(name)]
    if missing:
        return f"not installed: {', '.join(missing)}; run: deploy/lab/install-packages.sh"
    if os.geteuid() != 0:
        return "a private Slurm needs root (fake devices, several users); without it: make demo SLURM=no"
    return ""


def _program(name: str) -> str:
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") or ""


def _listens(port: int) -> bool:
    """True if something listens on *port*. A connection would leave an error in Slurm's log."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(
        int(local.rpartition(":")[2], 16) == port and state == "0A" for _, local, _, state, *_ in lines
    )


def _answers(path: Path) -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as link:
        link.connect(str(path))
        return True
    return False
