"""`interleave doctor`: whether all parts are installed as they should be, on this host."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib.metadata import EntryPoint, entry_points

import click

from slurm_interleave.client.cli.fields import shown
from slurm_interleave.client.core.config import config_path
from slurm_interleave.client.core.errors import InterleaveError
from slurm_interleave.client.doctor import own
from slurm_interleave.client.doctor.finding import GROUP, Finding, Host, Level, Part, error, warning

_WIDTH = len(Level.WARNING.value)


@click.command(short_help="Check the installation of this host.")
@click.option("--config", metavar="FILE", help="Configuration instead of /etc/slurm/interleave.toml.")
@click.option("--node", default="", help="This node's name in Slurm, if it is not the host's name.")
@click.option("--job", default="", metavar="ID", help="Say too what Slurm and placement say of this job.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: an object for each check.")
@click.pass_context
def doctor(context: click.Context, config: str | None, node: str, job: str, as_json: bool) -> None:
    """Check the installation of this host: head node, compute node or login node. Best run as root.

    One line for each check: ok, warning or error, and what to do. Exit status 1 if there is an error.
    """
    host = Host(config_path(config), socket.gethostname().partition(".")[0], node, job)
    found = []
    for finding in _all(host):
        found.append(finding)
        if not as_json:
            click.echo(_line(finding))
    if as_json:
        click.echo(json.dumps({"findings": [asdict(finding) for finding in found]}, indent=2))
    if any(finding.level is Level.ERROR for finding in found):
        context.exit(1)


def _all(host: Host) -> Iterator[Finding]:
    yield from _safely("this host", own.findings, host)
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name, reverse=True):
        part = _loaded(entry)
        if isinstance(part, Finding):
            yield part
        else:
            yield from _safely(entry.name, part, host)


def _loaded(entry: EntryPoint) -> Part | Finding:
    try:
        part: Callable[[Host], Iterator[Finding]] = entry.load()
    except ImportError as bad:
        return warning(entry.name, f"not checked: {bad}", "fine where this host has no part in it")
    return part


def _safely(name: str, part: Part, host: Host) -> Iterator[Finding]:
    """Yield what *part* finds; what it cannot look at is a finding too."""
    try:
        yield from part(host)
    except (InterleaveError, OSError) as bad:
        yield error(name, f"could not be checked: {bad}")


def _line(finding: Finding) -> str:
    advice = f"; {finding.advice}" if finding.advice else ""
    return f"{finding.level.value:<{_WIDTH}}  {finding.check}: {shown(finding.text + advice)}"
