"""`interleave register`: makes a process a job of a declared group, where there is no Slurm."""

from __future__ import annotations

import os
import shlex
import sys

import click

from slurm_interleave.client.connect import ClientConfig
from slurm_interleave.client.core.config import config_path, load_section
from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.client.core.names import parse_group_name
from slurm_interleave.client.registration import register as register_process


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "-G", "--group", required=True, help="The group: one that [groups.NAME] declares for this node."
)
@click.option("--role", default="", help="trainer or sampler, where a job has devices for both.")
@click.option("--job", default="", help="A name for the job; needed for one that runs on several nodes.")
@click.option("--nodes", default="", help="All nodes of the job, comma separated; default: this one.")
@click.option("--nice", type=int, default=0, help="Come later by so much, under policy priority.")
@click.option("--pid", type=int, help="Register this process of yours, and print its variables for a shell.")
@click.option("--config", metavar="FILE", help="interleave.toml to read.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def register(
    group: str,
    role: str,
    job: str,
    nodes: str,
    nice: int,
    pid: int | None,
    config: str | None,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND as a job of a group, without Slurm.

    COMMAND takes this program's place, with the variables of an interleaved job. When its process ends, the
    job ends: its devices are free, and what it left running is killed. In a shell script, instead of COMMAND:

    \b
        eval "$(interleave register --group NAME --pid $$)"
    """
    if bool(command) == bool(pid):
        raise BadArgument("give the command to run, or --pid of a process that runs, not both")
    request = {
        "group": parse_group_name(group),
        "role": role,
        "job": job,
        "nodes": [node for node in nodes.split(",") if node],
        "nice": nice,
        "pid": pid or os.getpid(),
    }
    settings = load_section(ClientConfig, "client", config_path(config))
    variables = register_process(settings.agent_socket, request)
    if not command:
        for key, value in variables.items():
            click.echo(f"export {key}={shlex.quote(value)}")
        return
    sys.stdout.flush()
    try:
        os.execvpe(command[0], command, {**os.environ, **variables})  # noqa: S606 - the user's own command
    except OSError as error:
        raise BadArgument(f"{command[0]}: cannot be run: {error.strerror}") from None
