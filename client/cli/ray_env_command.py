"""`interleave ray-env`: in a job's script, what a Ray cluster of its own needs."""

from __future__ import annotations

import os
import shlex

import click

from slurm_interleave.client.integrations.ray_env import is_free, make_folder, own_address, ray_environment


@click.command("ray-env", short_help="Print what gives a job a Ray of its own.")
@click.option("--address", metavar="IP", help="Address of this node for Ray (default: the one others reach).")
def ray_env(address: str | None) -> None:
    """Print what a job sets so that its Ray and that of another job share a node: ports, folder, address.

    \b
        eval "$(interleave ray-env)"
        ray start $INTERLEAVE_RAY_HEAD --block &    # other nodes: ray start $INTERLEAVE_RAY_NODE --block
        python driver.py                            # ray.init() finds RAY_ADDRESS
        kill $!; rm -rf "$RAY_TMPDIR"               # never `ray stop`: it ends the other job's Ray too

    Run it once a job, on its first node.
    """
    made = ray_environment(os.environ, address or own_address(), is_free, make_folder)
    for name, value in made.items():
        click.echo(f"export {name}={shlex.quote(value)}")
