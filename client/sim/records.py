"""The plain files beside the arenas: settings of the node's devices, and what happened on them."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from slurm_interleave.client.core.config import load_section
from slurm_interleave.client.sim.errors import SimError
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.client.sim.table import open_shared

CONFIG = "config.json"
VIOLATIONS = "violations.jsonl"
WORK = "work.jsonl"


def make_folder(path: Path) -> Path:
    """Make *path* for every user, if it is missing, and return it."""
    try:
        missing = [parent for parent in path.parents if not parent.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for parent in missing:
            parent.chmod(0o755)  # whatever the umask says
        if path.stat().st_uid == os.geteuid():
            path.chmod(0o777)
    except OSError as error:
        raise SimError(f"{path}: the folder of the simulated devices cannot be made: {error}") from error
    return path


def settle(directory: Path, wanted: SimConfig | None, *, in_use: bool) -> SimConfig:
    """Return the settings of the devices in *directory*, stored now if there are none.

    Speeds may change at any time; the size of a device in use may not: `SimError`.
    """
    stored = read_config(directory)
    if stored is None:
        wanted = wanted or load_section(SimConfig, "sim", None)
    if wanted is None or wanted == stored:
        return stored or SimConfig()
    if stored and in_use and wanted.memory_mib != stored.memory_mib:
        raise SimError(
            f"{directory}: [sim] memory_mib = {wanted.memory_mib}, but its devices are in use with "
            f"{stored.memory_mib} MiB; end the jobs that use them first"
        )
    if stored and wanted.memory_mib != stored.memory_mib:
        for arena in directory.glob("device-*"):
            arena.unlink()
    _write_config(directory, wanted)
    return replace(wanted, directory=directory)


def read_config(directory: Path) -> SimConfig | None:
    """Return the settings stored in *directory*, or None if there are none."""
    try:
        values = json.loads((directory / CONFIG).read_text())
    except FileNotFoundError:
        return None
    return SimConfig(directory=directory, **values)


def _write_config(directory: Path, config: SimConfig) -> None:
    values = asdict(config)
    del values["directory"]
    fresh = directory / f"{CONFIG}.new"
    with os.fdopen(open_shared(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w") as file:
        json.dump(values, file)
    fresh.replace(directory / CONFIG)


def append_line(path: Path, **fields: Any) -> None:
    """Append one JSON object, in one write, so that lines of several processes do not mix."""
    descriptor = open_shared(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(descriptor, json.dumps(fields).encode() + b"\n")
    finally:
        os.close(descriptor)


def note_violation(directory: Path, kind: str, device: int, jobs: set[str], text: str) -> None:
    """Record that two jobs were where only one may be."""
    append_line(
        directory / VIOLATIONS, time=time.time(), kind=kind, device=device, jobs=sorted(jobs), text=text
    )


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file of JSON lines; none if it does not exist."""
    if not path.exists():
        return []
    whole = path.read_text().rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines()]
