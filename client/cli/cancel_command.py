"""`interleave cancel-operation`: what is being done to a job's device state is stopped and undone."""

from __future__ import annotations

import click

from slurm_interleave.client.cli.link import groups_where, orchestrator
from slurm_interleave.client.cli.query import source_options
from slurm_interleave.client.core.errors import NotRegistered
from slurm_interleave.client.core.names import parse_group_name, parse_job_id


@click.command("cancel-operation", short_help="Stop and undo a move of device state under way.")
@click.argument("job")
@click.option("-G", "--interleave-group", "group", help="The group, where the job is in several.")
@source_options
def cancel_operation(job: str, group: str | None, config: str | None, address: str | None) -> None:
    """Stop the snapshot, restore or drain of JOB under way, undo it, and say where its device state is then.

    A job whose snapshot or drain is stopped runs on; one whose restore is stopped stays saved. Who waits for
    the devices keeps the place, and it is tried again after 5 seconds. What can only be waited for, such as a
    call of the driver, is undone when it has ended. For operators.
    """
    job_id = parse_job_id(job)
    with orchestrator(config, address) as link:
        groups = [parse_group_name(group)] if group else groups_where(job_id, link.status(), lambda _: True)
        if not groups:
            raise NotRegistered(f"job {job_id} is in no group; see: interleave status")
        for name in groups:
            contexts = link.cancel_operation(job_id, name)
            if not contexts:
                click.echo(f"job {job_id}: it has left its nodes, so nothing is left to be stopped")
            for context in contexts:
                click.echo(f"job {job_id}: on node {context.node}: {context.state}")
