"""One line of `interleave doctor`, and what the parts that find them are given."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

GROUP = "slurm_interleave.doctor"
"""The entry points of the parts: each is a `Part`."""


class Level(str, Enum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"  # works, but not as it should
    ERROR = "error"  # interleaved jobs will not run, or not safely


@dataclass(frozen=True)
class Finding:
    """What one check says."""

    check: str
    level: Level
    text: str
    advice: str = ""
    """What to do about it."""


@dataclass(frozen=True)
class Host:
    """Where it runs, and what is asked beside."""

    config: Path | None
    """interleave.toml; None: there is none."""
    name: str
    """Up to the first dot."""
    node: str = ""
    """The node's name in Slurm as it was given; empty: as the agent finds it out."""
    job: str = ""
    """Look at this job too."""


Part = Callable[[Host], Iterable[Finding]]


def ok(check: str, text: str) -> Finding:
    """Return that all is well."""
    return Finding(check, Level.OK, text)


def warning(check: str, text: str, advice: str = "") -> Finding:
    """Return what works and should not be so."""
    return Finding(check, Level.WARNING, text, advice)


def error(check: str, text: str, advice: str = "") -> Finding:
    """Return what must be mended."""
    return Finding(check, Level.ERROR, text, advice)
