"""`interleave drain`: jobs leave a node with all that their processes are."""

from __future__ import annotations

import shutil
import subprocess

import click

from slurm_interleave.client.cli.fields import bytes_text, seconds, shown
from slurm_interleave.client.cli.link import orchestrator
from slurm_interleave.client.cli.query import source_options
from slurm_interleave.client.core.errors import SlurmFailed, WrongState

_SCONTROL_S = 30.0


@click.command(short_help="Save the jobs of a node to disk and requeue them.")
@click.argument("node")
@click.option("--keep-node", is_flag=True, help="Do not drain the node in Slurm: jobs may come back to it.")
@source_options
def drain(node: str, keep_node: bool, config: str | None, address: str | None) -> None:
    """Save the processes of all interleaved jobs on NODE to disk and requeue the jobs, which go on elsewhere.

    For jobs on one node whose script says `interleave run COMMAND`; needs criu 4.1 or later and [agent]
    image_dir. Jobs that cannot be saved are named with the reason and run on; the exit status is
    1 then. For operators.
    """
    if not keep_node:
        _drain_in_slurm(node)
    failed = 0
    with orchestrator(config, address) as link:
        for update in link.drain(node):
            if update.ok:
                size = f"{bytes_text(update.bytes)} in {seconds(update.seconds)} s"
                click.echo(f"job {update.job_id}: saved ({size}) and requeued")
            else:
                failed += 1
                click.echo(f"job {update.job_id}: runs on: {shown(update.error)}", err=True)
    if failed:
        raise WrongState(f"node {node}: {failed} jobs were not saved")


def _drain_in_slurm(node: str) -> None:
    """Keep Slurm from starting jobs there; where there is no Slurm, nothing would."""
    if shutil.which("scontrol") is None:
        return
    command = ["scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=interleave drain"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SCONTROL_S, check=False)
    except subprocess.TimeoutExpired:
        raise SlurmFailed(f"scontrol gave no answer within {_SCONTROL_S:g} s; nothing was saved") from None
    if done.returncode != 0:
        why = (done.stderr or done.stdout).strip()
        raise SlurmFailed(f"node {node} cannot be drained in Slurm, so nothing was saved: {why}")
