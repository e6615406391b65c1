"""Slurm's reservations, as far as they keep jobs from nodes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from slurm_interleave.client.core.hostlist import expand

_WORD = re.compile(r"(\w+)=(\S*)")


@dataclass(frozen=True)
class Reservation:
    """Nodes that are kept for some users, or from all (maintenance)."""

    name: str
    nodes: tuple[str, ...]
    active: bool
    """Now, by slurmctld's clock."""


def parse_reservations(text: str) -> list[Reservation]:
    """Return what `scontrol --oneliner show reservation` prints; one that has no nodes has none here."""
    found = []
    for line in text.splitlines():
        words = dict(_WORD.findall(line))
        if "ReservationName" in words:
            nodes = words.get("Nodes", "").replace("(null)", "")
            found.append(Reservation(words["ReservationName"], expand(nodes), words.get("State") == "ACTIVE"))
    return found
