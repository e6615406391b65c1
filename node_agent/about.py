"""What the agent says of itself to `interleave doctor`, at its hook socket."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from slurm_interleave.client.core.hook_server import Peer, Verb
from slurm_interleave.node_agent.backends.protocol import Backend
from slurm_interleave.node_agent.link import Link
from slurm_interleave.node_agent.movers import APPS


def about(node: str, backend: Backend, link: Link) -> Verb:
    """Return the verb that tells."""

    async def tell(_request: dict[str, Any], _peer: Peer) -> Mapping[str, Any]:
        return {
            "node": node,
            "version": version("slurm-interleave"),
            "backends": [backend.name, *APPS],
            "devices": len(backend.devices()),
            "connected": link.connected.is_set(),
        }

    return tell
