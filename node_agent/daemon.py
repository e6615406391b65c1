"""`interleave-agent`: the node agent's process."""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import sys
from collections.abc import Mapping
from pathlib import Path

from slurm_interleave.client.core import logs
from slurm_interleave.client.core.config import config_path, load_section
from slurm_interleave.client.core.errors import ConfigError, InterleaveError
from slurm_interleave.client.core.groups import DeclaredGroup, load_groups
from slurm_interleave.client.core.single import only_one
from slurm_interleave.client.core.tracing import TracingConfig, exporting
from slurm_interleave.client.core.until_stopped import until_stopped
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.backends.cuda.backend import CudaBackend
from slurm_interleave.node_agent.backends.cuda.settings import CudaConfig
from slurm_interleave.node_agent.backends.noop import NoopBackend
from slurm_interleave.node_agent.backends.protocol import Backend
from slurm_interleave.node_agent.backends.sim import SimBackend
from slurm_interleave.node_agent.config import AgentConfig, load
from slurm_interleave.node_agent.state import State


def main() -> None:
    """Run `interleave-agent` until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="interleave-agent", description="Node agent of slurm-interleave.")
    parser.add_argument(
        "--config", help="interleave.toml; default $INTERLEAVE_CONFIG or /etc/slurm/interleave.toml"
    )
    parser.add_argument("--node", help="the node's name in Slurm, in place of [agent] node")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    args = parser.parse_args()
    logs.set_up(args.log_level)
    try:
        path = config_path(args.config)
        config, sim = load(path, {"node": args.node})
        cuda = load_section(CudaConfig, "cuda", path)
        groups = load_groups(path)
        tracing = load_section(TracingConfig, "tracing", path)
        os.umask(0o077)  # what users must reach is opened by name
        _raise_descriptor_limit()
        with (
            only_one(config.state_dir / "agent.lock", "interleave-agent"),
            exporting(tracing, "interleave-agent"),
        ):
            asyncio.run(_serve(config, sim, cuda, groups))
    except InterleaveError as error:
        sys.exit(f"interleave-agent: {error}")


def backend_of(config: AgentConfig, sim: SimConfig, cuda: CudaConfig, state: State) -> Backend:
    """Return the configured backend. Raises `SimError`, `ConfigError`."""
    spill = _spill_folder(config)
    match config.backend:
        case "noop":
            return NoopBackend(config.node, sim.devices)
        case "cuda":
            return CudaBackend(cuda, config.state_dir, state.owners, config.run_dir / "cuda.json")
        case _:
            return SimBackend(config.node, sim, spill)


def _spill_folder(config: AgentConfig) -> Path | None:
    if not config.spill_dir:
        return None
    folder = Path(config.spill_dir) / "sim"  # which forgets whatever is there of no job
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"[agent] spill_dir = {config.spill_dir}: cannot be used: {error}") from error
    return folder


def _raise_descriptor_limit() -> None:
    """Allow as many open files as root does: each job may open connections to its socket."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(
    config: AgentConfig, sim: SimConfig, cuda: CudaConfig, groups: Mapping[str, DeclaredGroup]
) -> None:
    state = State(config.state_dir, config.run_dir / "agent.json")
    agent = Agent(config, sim, backend_of(config, sim, cuda, state), state, groups)
    await until_stopped(agent.run())


if __name__ == "__main__":
    main()
