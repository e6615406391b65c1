"""Registers a process with the agent of its node, where no Slurm does it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slurm_interleave.client.connect import ClientConfig
from slurm_interleave.client.core.config import config_path, load_section
from slurm_interleave.client.core.errors import InterleaveError, NotRegistered

_LIMIT_S = 10.0
# What an earlier launcher has set says that the registration is its business.
_BY_OTHERS = ("INTERLEAVE_TOKEN", "INTERLEAVE_JOB_ID", "SLURM_JOB_ID")


def register(agent_socket: Path, request: Mapping[str, object]) -> dict[str, str]:
    """Return the variables of the job that the process is now. Raises `NotRegistered` with the reason."""
    try:
        reply = _ask(agent_socket, {"verb": "register", **request})
    except (OSError, ValueError) as error:
        raise NotRegistered(
            f"the interleave-agent of this node does not answer at {agent_socket}: {error}; it serves "
            "there if [groups.NAME] in interleave.toml declares a group of this node; another socket: "
            "agent_socket in [client]"
        ) from None
    if not reply.get("ok"):
        raise NotRegistered(f"the interleave-agent of this node refused: {reply.get('error')}")
    return {str(key): str(value) for key, value in reply["variables"].items()}


def registered(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return *environ* with a job's variables, registering this process if nobody has done that for it.

    They are set in this process too where *environ* is its environment. Raises `NotRegistered`.
    """
    if any(environ.get(name) for name in _BY_OTHERS):
        return environ
    request = {
        "group": environ["INTERLEAVE_GROUP"],
        "role": environ.get("INTERLEAVE_ROLE", ""),
        "nice": environ.get("INTERLEAVE_NICE", "0"),
        "job": environ.get("INTERLEAVE_JOB", ""),
        "nodes": [node for node in environ.get("INTERLEAVE_NODES", "").split(",") if node],
    }
    variables = register(_config(environ).agent_socket, request)
    if environ is os.environ:
        os.environ.update(variables)
    return {**environ, **variables}


def _config(environ: Mapping[str, str]) -> ClientConfig:
    try:
        return load_section(ClientConfig, "client", config_path(None, environ), environ=environ)
    except ImportError:  # no TOML before Python 3.11 without the extra packages
        return load_section(ClientConfig, "client", None, environ=environ)
    except InterleaveError as error:
        raise NotRegistered(str(error)) from None


def _ask(path: Path, request: Mapping[str, object]) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(_LIMIT_S)
        link.connect(str(path))
        with contextlib.suppress(ConnectionError):  # who is refused unheard finds the reason below
            link.sendall(json.dumps(request).encode() + b"\n")
        with link.makefile("rb") as lines:
            reply: dict[str, Any] = json.loads(lines.readline())
    return reply
