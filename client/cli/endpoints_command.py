"""`interleave endpoints`: in a job's script, names the inference servers that hold its device state."""

from __future__ import annotations

import click

from slurm_interleave.client.cli.words import OneOf
from slurm_interleave.client.core.errors import NotRegistered
from slurm_interleave.client.endpoints import register_endpoints


@click.command(short_help="Name the vLLM or SGLang servers of this job.")
@click.argument("app", type=OneOf(["vllm", "sglang"]))
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@click.option("--discard", is_flag=True, help="They suspend without keeping the weights.")
def endpoints(app: str, urls: tuple[str, ...], discard: bool) -> None:
    """Name the servers of this job on this node, as in: interleave endpoints vllm http://localhost:8000

    The node's agent drains and suspends them when another job has its turn. Naming others takes their place.
    """
    if not register_endpoints(app, urls, discard=discard):
        raise NotRegistered("this is no process of an interleaved job: INTERLEAVE_SOCKET is not set")
