"""The one interleave.toml of a lab, and the daemons that read it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lab.processes import Daemon
from lab.scratch import Scratch, program

_READY = "event=ready"


@dataclass(frozen=True)
class SimSettings:
    """Section [sim] but for the directory: the simulated devices of each node."""

    memory_mib: int = 256
    snapshot_gib_s: float = 0.0
    """0: unlimited"""
    restore_gib_s: float = 0.0
    """0: unlimited"""


def sections(
    scratch: Scratch, port: int, devices: int, sim: SimSettings, munge_socket: Path | None = None
) -> dict[str, dict[str, Any]]:
    """Return the configuration's tables; without *munge_socket* nobody proves who he is."""
    root, address = scratch.root, f"127.0.0.1:{port}"
    auth = {"auth": "munge" if munge_socket else "none", "munge_socket": str(munge_socket or "")}
    return {
        "orchestrator": {
            "listen": address,
            "database": f"sqlite:///{root}/state/orchestrator.db",
            "socket": f"{root}/run/interleaved.sock",
            "cluster": "lab",
            **auth,
        },
        "placement": {"enabled": False},
        "pairing": {"profiles": f"{root}/state/profiles.json"},
        "agent": {
            "orchestrator": address,
            "run_dir": f"{root}/run/%n",
            "state_dir": f"{root}/state/%n",
            "backend": "sim",
            **auth,
        },
        "sim": {"directory": f"{scratch.sim}/%n", "devices": devices, **asdict(sim)},
        "client": {"orchestrator": address, **auth},
    }


def write(path: Path, tables: Mapping[str, Mapping[str, Any]], more: Mapping[str, Mapping[str, Any]]) -> None:
    """Write *tables*, and the keys of *more*, as TOML.

    JSON's strings, numbers, booleans and lists of those are TOML's too.
    """
    lines: list[str] = []
    for name in {**tables, **more}:
        table = {**tables.get(name, {}), **more.get(name, {})}
        lines += ["", f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    path.write_text("\n".join(lines[1:]) + "\n")


def daemons(scratch: Scratch, nodes: Sequence[str], env: Mapping[str, str]) -> list[Daemon]:
    """Return `interleaved` and one `agent-<node>` for each node, not yet started."""
    config = str(scratch.root / "etc" / "interleave.toml")
    commands = {"interleaved": [program("interleaved"), "--config", config]}
    for node in nodes:
        commands[f"agent-{node}"] = [program("interleave-agent"), "--config", config, "--node", node]
    return [_daemon(scratch, name, argv, env) for name, argv in commands.items()]


def _daemon(scratch: Scratch, name: str, argv: list[str], env: Mapping[str, str]) -> Daemon:
    daemon = Daemon(name, argv, scratch.root / "log" / f"{name}.log", env, lambda: daemon.said(_READY))
    return daemon
