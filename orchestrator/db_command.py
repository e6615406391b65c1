"""`interleave db`: looks after the orchestrator's database, also while `interleaved` runs."""

from __future__ import annotations

import importlib.util
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from slurm_interleave.client.cli.entry import missing
from slurm_interleave.client.cli.times import parse_time, time_text
from slurm_interleave.client.core.config import config_path, load_section
from slurm_interleave.client.core.errors import BadArgument, ConfigError
from slurm_interleave.orchestrator.config import OrchestratorConfig

if TYPE_CHECKING:
    from slurm_interleave.sql.admin import Database

# A bare number would be seconds for `parse_time`, which nobody means who forgets history.
_AGE = re.compile(r"[1-9]\d{0,5}(hour|day|week)s?")
Command = TypeVar("Command", bound=Callable[..., Any])


@click.group(invoke_without_command=True)
@click.pass_context
def db(context: click.Context) -> None:
    """Look after the orchestrator's database."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
        context.exit(2)


def database_options(command: Command) -> Command:
    """Add the options that `database_of` takes."""
    for option in (
        click.option("--database", metavar="URL", help="Database instead of [orchestrator] database."),
        click.option("--config", metavar="FILE", help="Configuration instead of /etc/slurm/interleave.toml."),
    ):
        command = option(command)
    return command


@db.command(short_help="Bring the database to this release's schema.")
@database_options
def upgrade(config: str | None, database: str | None) -> None:
    """Bring the database to this release's schema; stop an older interleaved before."""
    with database_of(config, database, create=True) as opened:
        before, after = opened.upgrade()
        if before == after:
            click.echo(f"{opened.name}: at revision {after} already")
        else:
            click.echo(f"{opened.name}: from {before or 'an empty database'} to revision {after}")


@db.command(short_help="List what is wrong with the schema or the rows.")
@database_options
@click.pass_context
def check(context: click.Context, config: str | None, database: str | None) -> None:
    """List what is wrong with the schema or the rows; exit status 1 if there is anything."""
    with database_of(config, database) as opened:
        found = opened.problems()
        for problem in found:
            click.echo(problem)
        if found:
            context.exit(1)
        click.echo(f"{opened.name}: no problem found")


@db.command(short_help="Forget slices that ended long ago.")
@database_options
@click.option(
    "--older-than",
    required=True,
    metavar="TIME",
    help="Age of the slices to forget, as 90days, 12weeks or 36hours.",
)
@click.option("--dry-run", is_flag=True, help="Only say how many there are.")
def prune(config: str | None, database: str | None, older_than: str, dry_run: bool) -> None:
    """Forget slices that ended long ago; small transactions, so interleaved may run."""
    moment = _moment(older_than, time.time())
    with database_of(config, database) as opened:
        count = opened.count_before(moment) if dry_run else sum(opened.prune(moment))
        verb = "would forget" if dry_run else "forgot"
        slices = "slice" if count == 1 else "slices"
        click.echo(f"{opened.name}: {verb} {count} {slices} that ended before {time_text(moment)}")


def _moment(age: str, now: float) -> float:
    if not _AGE.fullmatch(age):
        raise BadArgument(
            f"--older-than {age!r} is no age; write a number and a unit, as 90days, 12weeks or 36hours"
        )
    return parse_time(f"now-{age}", now)


def database_of(config: str | None, database: str | None, *, create: bool = False) -> Database:
    """Return the database that is configured, or *database*. Raises `ConfigError`."""
    for package in ("sqlalchemy", "alembic"):
        if importlib.util.find_spec(package) is None:
            raise ConfigError(missing(package, "orchestrator"))
    from slurm_interleave.sql.admin import Database

    section = load_section(OrchestratorConfig, "orchestrator", config_path(config), {"database": database})
    return Database(section.database, create=create)
