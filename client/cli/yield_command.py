"""`interleave yield`: an operator takes the devices from a job, which is saved and queued again."""

from __future__ import annotations

import click

from slurm_interleave.client.cli.link import groups_where, orchestrator
from slurm_interleave.client.cli.query import source_options
from slurm_interleave.client.core.errors import NotTheHolder
from slurm_interleave.client.core.names import parse_group_name, parse_job_id
from slurm_interleave.client.wire import interleave_v1_pb2 as pb


@click.command("yield", short_help="Take the devices from a job that holds them.")
@click.argument("job")
@click.option("-G", "--interleave-group", "group", help="The group, where the job holds devices of several.")
@source_options
def yield_(job: str, group: str | None, config: str | None, address: str | None) -> None:
    """Take the devices from JOB: its device state is saved under it, and it is queued behind those that wait.

    For root, SlurmUser and the operators of the site. The job goes on when its turn comes again.
    """
    job_id = parse_job_id(job)
    with orchestrator(config, address) as link:
        groups = [parse_group_name(group)] if group else _held_by(job_id, link.status())
        for name in groups:
            link.revoke(job_id, name)
            click.echo(f"job {job_id}: the devices of group {name} were taken back")


def _held_by(job_id: str, reply: pb.StatusReply) -> list[str]:
    held = groups_where(job_id, reply, lambda member: member.epoch)
    if not held:
        raise NotTheHolder(f"job {job_id} holds no devices; see: interleave status")
    return held
