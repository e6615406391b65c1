"""`interleave web`: a link to the page of `interleaved`."""

from __future__ import annotations

import click

from slurm_interleave.client.cli.link import orchestrator
from slurm_interleave.client.cli.query import source_options
from slurm_interleave.client.cli.times import time_text


@click.command(short_help="Print a link to the web page.")
@source_options
def web(config: str | None, address: str | None) -> None:
    """Print a link to the web page: groups, queue, the last hour, savings, as far as you may see them.

    Whoever has the link sees the same: keep it to yourself.
    """
    with orchestrator(config, address) as link:
        page = link.open_page()
    click.echo(page.url)
    click.echo(f"good until {time_text(page.until)}", err=True)
    if page.loopback:
        port = page.url.split("/")[2].rpartition(":")[2]
        click.echo(
            f"the page is on the orchestrator's host; from elsewhere: ssh -L {port}:127.0.0.1:{port} HOST",
            err=True,
        )
