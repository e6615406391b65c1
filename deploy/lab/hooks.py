"""Our parts of Slurm in the private cluster: the SPANK plugin, job_submit.lua, prolog and epilog."""

from __future__ import annotations

from pathlib import Path

from lab.scratch import REPOSITORY
from lab.slurm_conf import Layout


def install(layout: Layout) -> tuple[Path | None, dict[str, Path]]:
    """Put our files where this cluster looks for them; return the SPANK plugin and the scripts by option."""
    return None, {}
