"""The databases of a run: files, private servers, or those of a site."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "deploy"))
from lab.databases import SERVERS, serving
from lab.processes import LabError

__all__ = ["KINDS", "SERVERS", "LabError", "database_of", "serving"]

KINDS = ("sqlite", *SERVERS)


def database_of(chosen: str, folder: Path, stack: contextlib.ExitStack) -> Callable[[str], str]:
    """Return what gives the URL of an empty database for a name.

    *chosen*: one of `KINDS`, or a URL with `{}` for the name. A private server ends with *stack*. Raises
    `LabError`.
    """
    if chosen in SERVERS:
        server = stack.enter_context(serving(chosen))
        return lambda _: server.fresh()
    return (f"sqlite:///{folder}/{{}}.db" if chosen == "sqlite" else chosen).format
