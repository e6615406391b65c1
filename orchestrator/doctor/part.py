"""The part of `interleave doctor` about Slurm, the way to it, and the orchestrator's database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

from slurm_interleave.client.cli.link import orchestrator
from slurm_interleave.client.core.config import load_section
from slurm_interleave.client.core.errors import BadName, ConfigError, InterleaveError
from slurm_interleave.client.core.groups import load_groups
from slurm_interleave.client.doctor.finding import Finding, Host, error, ok, warning
from slurm_interleave.orchestrator.config import OrchestratorConfig
from slurm_interleave.orchestrator.core.rules import Rules
from slurm_interleave.orchestrator.doctor import checks
from slurm_interleave.orchestrator.doctor.facts import SlurmFacts, gather
from slurm_interleave.orchestrator.placement.admin_comment import parse_comment
from slurm_interleave.orchestrator.placement.config import PlacementConfig, load_placement
from slurm_interleave.orchestrator.placement.gateway import Gateway, by_group, choose
from slurm_interleave.orchestrator.placement.squeue import SlurmJob


def findings(host: Host) -> Iterator[Finding]:
    """Check them, as far as this host has them."""
    try:
        config = load_section(OrchestratorConfig, "orchestrator", host.config)
        placement = load_placement(host.config)
        load_section(Rules, "turns", host.config)
        load_groups(host.config)
    except ConfigError as bad:
        yield error("orchestrator's configuration", str(bad), "mend the file; all hosts have the same one")
        return
    if config.socket.exists():  # it runs here, or did
        yield from _database(config)
    if not placement.enabled:
        yield ok("slurm", "[placement] enabled is off: Slurm is not used")
        return
    try:
        facts = asyncio.run(gather(placement.partition))
    except (InterleaveError, OSError) as bad:
        yield error("slurm", f"cannot be asked: {bad}", "is slurmctld up, and slurm.conf here?")
        return
    head, node = facts.is_head(host.name), (host.node or host.name) in (facts.partition or ())
    yield from checks.findings(facts, placement, head=head, node=node)
    yield from asyncio.run(_through_gateway(host, placement, facts))
    if head and not config.socket.exists():
        yield from _database(config)


async def _through_gateway(host: Host, config: PlacementConfig, facts: SlurmFacts) -> list[Finding]:
    try:
        gateway = await choose(config.gateway)
    except ConfigError as bad:
        return [error("gateway", str(bad))]
    try:
        return [finding async for finding in _asked(gateway, host, config, facts)]
    except InterleaveError as bad:
        return [error("gateway", f"{gateway.name}: {bad}")]
    finally:
        await gateway.close()


async def _asked(
    gateway: Gateway, host: Host, config: PlacementConfig, facts: SlurmFacts
) -> AsyncIterator[Finding]:
    queue = await gateway.slurm.jobs()
    try:
        groups = by_group(queue)
        count = sum(map(len, groups.values()))
        text = f"{len(queue)} jobs, {count} of them interleaved in {len(groups)} groups"
        yield ok("gateway", f"{gateway.name} ({gateway.why}): {text}")
    except BadName as bad:
        yield error("gateway", f"{gateway.name}: AdminComment of a job: {bad}")
    states, kept = await gateway.slurm.node_states(), await gateway.slurm.reservations()
    for finding in checks.nodes(config, facts.partition or (), states, kept, _connected(host)):
        yield finding
    if host.job:
        yield of_job(await gateway.slurm.job(host.job))


def _connected(host: Host) -> frozenset[str] | None:
    """Return the nodes that the orchestrator has an agent of; None if it does not say."""
    try:
        with orchestrator(str(host.config) if host.config else None, None) as link:
            return frozenset(node.name for node in link.status().nodes)
    except InterleaveError:
        return None


def of_job(job: SlurmJob) -> Finding:
    """Say where a job stands."""
    text = f"{'+'.join(sorted(job.states))}, reason {job.reason}"
    comment = parse_comment(job.admin_comment)
    if comment is None:
        text += ": not interleaved"
    else:
        text += f": group {comment.group}, AdminComment {job.admin_comment}"
        if comment.why:
            return warning(f"job {job.name}", text)
    return ok(f"job {job.name}", text)


def _database(config: OrchestratorConfig) -> Iterator[Finding]:
    try:
        from slurm_interleave.sql.admin import Database, may_open

        if not may_open(config.database):
            text = f"{config.database}: not checked: this user may not read and write it"
            yield warning("database", text, "run interleave doctor as root")
            return
        with Database(config.database) as database:
            database.require_head()
            yield ok("database", f"{database.name}: its schema is this release's")
    except ImportError as bad:
        yield error("database", f"{bad}", "pip install 'slurm-interleave[orchestrator]'")
    except InterleaveError as bad:
        yield error("database", str(bad))
