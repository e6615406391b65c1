"""What `interleave doctor` checks on a compute node: the agent, and what its backend needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any

from slurm_interleave.client.core.config import load_section
from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.client.doctor.finding import Finding, Host, error, ok, warning
from slurm_interleave.node_agent.backends.cuda import probe
from slurm_interleave.node_agent.backends.cuda.requirements import cautions, refusals
from slurm_interleave.node_agent.backends.cuda.settings import CudaConfig
from slurm_interleave.node_agent.config import AgentConfig, load
from slurm_interleave.node_agent.hook import ask


def findings(host: Host) -> Iterator[Finding]:
    """Check them where there is, or should be, an agent: where it has a folder, or a node was named."""
    try:
        config, _ = load(host.config, {"node": host.node or None})
        cuda = load_section(CudaConfig, "cuda", host.config)
    except ConfigError as bad:
        yield error("agent's configuration", str(bad), "mend the file; all hosts have the same one")
        return
    if not (host.node or _was_started(config)):
        yield ok("agent", "none was ever started here; on a compute node of another name: --node")
        return
    yield _agent(config)
    if config.backend == "cuda":
        yield from _cuda(cuda)


def _was_started(config: AgentConfig) -> bool:
    try:
        return (config.state_dir / "agent.lock").exists()
    except PermissionError:  # others than root may not look into it
        return True


def _agent(config: AgentConfig) -> Finding:
    path = config.hook_socket
    try:
        reply = ask(str(path), {"verb": "about"})
    except PermissionError:
        return warning("agent", f"{path}: not asked: only root may", "run interleave doctor as root")
    except (OSError, ValueError) as bad:
        return error("agent", f"{path}: no answer: {bad or 'time is up'}", "start interleave-agent here")
    if not reply.get("ok"):
        return warning("agent", f"{path}: {reply.get('error')}", "run as root; restart an older agent")
    return judge(reply, config, version("slurm-interleave"))


def judge(reply: Mapping[str, Any], config: AgentConfig, own: str) -> Finding:
    """Say what is wrong with an agent that answers."""
    node = f"node {reply['node']}"
    backends = reply["backends"]
    if not reply["connected"]:
        text = f"{node} is not connected to the orchestrator at {config.orchestrator}"
        return error("agent", text, "its log says why (link.failed)")
    if config.backend != backends[0]:
        text = f"{node} runs backend {backends[0]}, the configuration says {config.backend}"
        return warning("agent", text, "restart interleave-agent")
    if reply["version"] != own:
        text = f"{node} runs version {reply['version']}, here is {own}"
        return warning("agent", text, "restart interleave-agent")
    return ok("agent", f"{node}, {reply['devices']} devices, backends {', '.join(backends)}")


def _cuda(config: CudaConfig) -> Iterator[Finding]:
    try:
        facts, gpus = probe.find(config.checkpoint_program)
    except ConfigError as bad:
        yield error("backend cuda", str(bad), "see docs/cuda.md")
        return
    if refused := refusals(facts, stores=bool(config.store)):
        yield from (error("backend cuda", str(reason), "see docs/cuda.md") for reason in refused)
        return
    yield ok("backend cuda", f"{len(gpus)} devices, driver {facts.driver}")
    yield from (warning("backend cuda", str(reason)) for reason in cautions(facts))
