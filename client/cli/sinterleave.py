"""`sinterleave`: the report of turns, in sacct's manner."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_interleave.client.cli import entry


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `sinterleave` and return its exit status."""
    return entry.run("sinterleave", "slurm_interleave.client.cli.report", arguments)
