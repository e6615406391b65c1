"""The click group behind `interleave`."""

from __future__ import annotations

import click

from slurm_interleave.client.cli.status import status
from slurm_interleave.client.cli.timeline_command import timeline
from slurm_interleave.client.cli.yield_command import yield_


@click.group(
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(None, "-V", "--version", package_name="slurm-interleave", prog_name="interleave")
@click.pass_context
def command(context: click.Context) -> None:
    """See and steer the groups of jobs that take turns on the same devices."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
        context.exit(2)


command.add_command(status)
command.add_command(timeline)
command.add_command(yield_)
