"""`interleave clear`: the exit of a faulted job."""

from __future__ import annotations

import click

from slurm_interleave.client.cli.fields import bytes_text
from slurm_interleave.client.cli.link import groups_where, orchestrator
from slurm_interleave.client.cli.query import source_options
from slurm_interleave.client.core.errors import WrongState
from slurm_interleave.client.core.names import parse_group_name, parse_job_id
from slurm_interleave.client.wire import interleave_v1_pb2 as pb


@click.command(short_help="End the fault of a job, so that it may acquire again.")
@click.argument("job")
@click.option("-G", "--interleave-group", "group", help="The group, where the job is faulted in several.")
@click.option("--keep", is_flag=True, help="Discard nothing; refused where device state is lost.")
@source_options
def clear(job: str, group: str | None, keep: bool, config: str | None, address: str | None) -> None:
    """End the fault of JOB: its devices are free again, and it may acquire again if its processes can.

    What the job has on its devices or saved in host memory is DISCARDED; its processes lose it and must
    load it anew, from a checkpoint of their own. With --keep nothing is discarded: for a job whose state is
    intact, but could not be moved. For the job's owner, root, SlurmUser and the operators of the site.
    """
    job_id = parse_job_id(job)
    with orchestrator(config, address) as link:
        groups = [parse_group_name(group)] if group else _faulted_in(job_id, link.status())
        for name in groups:
            discarded = link.clear(job_id, name, keep=keep)
            click.echo(f"job {job_id}: no longer faulted in group {name}")
            for context in discarded:
                click.echo(f"job {job_id}: lost on node {context.node}: {_lost(context)}")


def _lost(context: pb.ContextStatus) -> str:
    devices = ",".join(map(str, context.devices))
    size = f", {bytes_text(context.bytes)}" if context.bytes else ""
    return f"device state of {devices} ({context.state}{size})"


def _faulted_in(job_id: str, reply: pb.StatusReply) -> list[str]:
    faulted = groups_where(job_id, reply, lambda member: member.fault)
    if not faulted:
        raise WrongState(f"job {job_id} is not faulted; see: interleave status")
    return faulted
