"""What is found out about the node when the agent starts."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.node_agent.backends.cuda import helpers, sight
from slurm_interleave.node_agent.backends.cuda.requirements import Facts, refusals
from slurm_interleave.node_agent.backends.cuda.sight import Gpu

_PROBE_S = 60.0
# comm of proc(5) has 15 characters.
_MPS = "nvidia-cuda-mps"
_CONFIGLESS = Path("/run/slurm/conf")


def probe(program: str, *, stores: bool = False) -> tuple[Facts, dict[str, Gpu]]:
    """Return the facts and the devices of a node that can serve; *stores*: with files of ours for the copies.

    Raises `ConfigError` with all reasons.
    """
    facts, gpus = find(program)
    if reasons := refusals(facts, stores=stores):
        text = "; ".join(map(str, reasons))
        raise ConfigError(f"[agent] backend = 'cuda' cannot work on this node: {text}")
    return facts, gpus


def find(program: str) -> tuple[Facts, dict[str, Gpu]]:
    """Ask a helper for the facts and the devices; *program*: cuda-checkpoint. Raises `ConfigError`."""
    found = _ask()
    devices = found["devices"]
    facts = Facts(
        machine=found["machine"],
        cuda_missing=found["missing"],
        nvml_missing=found["nvml_missing"],
        cuda_version=found["cuda_version"],
        lacking=tuple(found["lacking"]),
        driver=found["driver"],
        mig=tuple(row["uuid"] for row in devices if row["mig"]),
        not_persistent=tuple(row["uuid"] for row in devices if not row["persistence"]),
        mps=mps_runs(),
        constrained=constrains_devices(os.environ),
        tool=shutil.which(program) or "",
        custom_storage=found["custom_storage"],
    )
    return facts, sight.parse(devices)


def constrains_devices(environ: Mapping[str, str]) -> bool | None:
    """Return ConstrainDevices of Slurm's cgroup.conf, None where there is no such file."""
    near = [Path(environ["SLURM_CONF"]).parent] if environ.get("SLURM_CONF") else []
    for folder in (*near, _CONFIGLESS, Path("/etc/slurm"), Path("/etc/slurm-llnl")):
        try:
            text = (folder / "cgroup.conf").read_text()
        except OSError:
            continue
        found = re.findall(r"^\s*ConstrainDevices\s*=\s*(\w+)", text, re.IGNORECASE | re.MULTILINE)
        return bool(found) and found[-1].lower() == "yes"
    return None


def mps_runs(proc: Path = Path("/proc")) -> bool:
    """Return whether the MPS control daemon runs."""
    return any(_text(path).startswith(_MPS) for path in proc.glob("[0-9]*/comm"))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""  # it has ended


def _ask(argv: Sequence[str] = ()) -> dict[str, Any]:
    request = {"call": "facts", "limit_s": _PROBE_S, "arguments": {}}
    try:
        done = subprocess.run(
            argv or helpers.command(),
            input=json.dumps(request) + "\n",
            capture_output=True,
            text=True,
            timeout=_PROBE_S,
            check=False,
            cwd="/",
            env=helpers.environment(),
        )
        if done.returncode != 0:  # its last line says why
            raise ValueError(done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}")
        answer: dict[str, Any] = json.loads(done.stdout)["value"]
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"[agent] backend = 'cuda': no answer of the driver within {_PROBE_S:g} s; see nvidia-smi, dmesg"
        ) from None
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"[agent] backend = 'cuda': a helper could not be run: {error}") from error
    return answer
