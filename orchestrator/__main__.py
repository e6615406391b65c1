"""`interleaved` as a program. It listens before most of it is imported, which is most of a start."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
from pathlib import Path

from slurm_interleave.client.core import logs
from slurm_interleave.client.core.config import config_path, load_section
from slurm_interleave.client.core.errors import InterleaveError
from slurm_interleave.client.core.single import only_one
from slurm_interleave.client.core.tracing import TracingConfig, exporting
from slurm_interleave.orchestrator.config import OrchestratorConfig
from slurm_interleave.orchestrator.door import Door


def main() -> None:
    """Run `interleaved` until SIGTERM or SIGINT."""
    gc.disable()  # what a start loads stays, so garbage is looked for only after that
    parser = argparse.ArgumentParser(prog="interleaved", description="Orchestrator of slurm-interleave.")
    parser.add_argument(
        "--config", help="interleave.toml; default $INTERLEAVE_CONFIG or /etc/slurm/interleave.toml"
    )
    parser.add_argument("--listen", help="host:port to serve on, in place of [orchestrator] listen")
    parser.add_argument("--database", help="SQLAlchemy URL, in place of [orchestrator] database")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    args = parser.parse_args()
    logs.set_up(args.log_level)
    try:
        path = config_path(args.config)
        flags = {"listen": args.listen, "database": args.database}
        config = load_section(OrchestratorConfig, "orchestrator", path, flags)
        tracing = load_section(TracingConfig, "tracing", path)
        # What others may open is given away explicitly.
        os.umask(0o077)
        # Before the database: opening that ends any other orchestrator.
        lock = config.socket.with_suffix(".lock")
        # An agent on this host has the sockets of jobs in the same folder.
        with only_one(lock, "interleaved", folder_mode=0o755), exporting(tracing, "interleaved"):
            asyncio.run(_serve(config, path))
    except InterleaveError as error:
        sys.exit(f"interleaved: {error}")


async def _serve(config: OrchestratorConfig, path: Path | None) -> None:
    door = Door(config.listen)
    try:
        await door.open()
        from slurm_interleave.orchestrator import daemon

        await daemon.serve(config, path, door)
    finally:
        await door.close()


if __name__ == "__main__":
    main()
