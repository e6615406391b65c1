"""The click group behind `interleave`, and the commands that other parts of the distribution add to it."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

import click

from slurm_interleave.client.cli.cancel_command import cancel_operation
from slurm_interleave.client.cli.clear_command import clear
from slurm_interleave.client.cli.doctor_command import doctor
from slurm_interleave.client.cli.drain_command import drain
from slurm_interleave.client.cli.endpoints_command import endpoints
from slurm_interleave.client.cli.ray_env_command import ray_env
from slurm_interleave.client.cli.register_command import register
from slurm_interleave.client.cli.run_command import run
from slurm_interleave.client.cli.status import status
from slurm_interleave.client.cli.timeline_command import timeline
from slurm_interleave.client.cli.web_command import web
from slurm_interleave.client.cli.yield_command import yield_
from slurm_interleave.client.core.errors import ConfigError

GROUP = "slurm_interleave.commands"


class _Commands(click.Group):
    """A group that also has the commands which installed distributions name as entry points.

    So the client needs to know neither SQL nor the daemons.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in alphabetical order."""
        return sorted({*super().list_commands(ctx), *entry_points(group=GROUP).names})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by its name; one that cannot be loaded says why when it is called."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        return next(map(_load, entry_points(group=GROUP, name=cmd_name)), None)


def _load(entry: EntryPoint) -> click.Command:
    try:
        loaded = entry.load()
    except ImportError as error:
        return _unusable(entry.name, f"interleave {entry.name} cannot be loaded: {error}")
    if isinstance(loaded, click.Command):
        return loaded
    return _unusable(entry.name, f"interleave {entry.name}: {entry.value} is no click command")


def _unusable(name: str, why: str) -> click.Command:
    def fail(_arguments: tuple[str, ...]) -> None:
        raise ConfigError(why)

    return click.Command(
        name,
        params=[click.Argument(["_arguments"], nargs=-1)],
        context_settings={"ignore_unknown_options": True},
        callback=fail,
        short_help=f"({why})",
    )


@click.group(
    cls=_Commands,
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


command.add_command(cancel_operation)
command.add_command(clear)
command.add_command(doctor)
command.add_command(drain)
command.add_command(endpoints)
command.add_command(ray_env)
command.add_command(register)
command.add_command(run)
command.add_command(status)
command.add_command(timeline)
command.add_command(web)
command.add_command(yield_)
