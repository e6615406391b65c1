"""`interleave`: what users and operators do beside submitting jobs. Each subcommand has its own file."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_interleave.client.cli import entry


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `interleave` and return its exit status."""
    return entry.run("interleave", "slurm_interleave.client.cli.commands", arguments)
