"""Which nodes have what a job's user asked for: GPUs of a type, features. Values in, values out.

The helper pins a job to its nodes, so Slurm no longer chooses them by what the job asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_TYPED_GPU = re.compile(r"(?:^|,)gpu:([A-Za-z_][\w.-]*)")


@dataclass(frozen=True)
class Traits:
    """What Slurm says that a node has."""

    gpu_types: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Wish:
    """What a job wants of each of its nodes; empty: whatever it is."""

    gpu_type: str = ""
    constraint: str = ""
    """Names of features joined by `&`, or by `|`; job_submit lets no other pass."""

    def __bool__(self) -> bool:
        return bool(self.gpu_type or self.constraint)

    def __str__(self) -> str:
        words = [f"GPUs of type {self.gpu_type} (a feature of that name)" if self.gpu_type else ""]
        words.append(f"the features {self.constraint}" if self.constraint else "")
        return " and ".join(filter(None, words))

    def met_by(self, node: Traits) -> bool:
        """Tell whether *node* will do.

        The types of shared GRES are indices, so a node has the type of its GPUs as a feature. One whose GPUs
        are of several types in Slurm will not do: which of them a job gets is not chosen by type.
        """
        named = self.gpu_type in node.features or node.gpu_types == {self.gpu_type}
        if self.gpu_type and not named:
            return False
        if "|" in self.constraint:
            return not node.features.isdisjoint(self.constraint.split("|"))
        return not self.constraint or node.features.issuperset(self.constraint.split("&"))

    def unmet(self, nodes: Mapping[str, Traits]) -> frozenset[str]:
        """Return those of *nodes* that will not do."""
        return (
            frozenset(name for name, node in nodes.items() if not self.met_by(node)) if self else frozenset()
        )


def parse_traits(text: str) -> dict[str, Traits]:
    """Return what `sinfo --Node --format="%N %b %G"` says; a node has a line for each of its partitions."""
    rows = [line.split() for line in text.splitlines()]
    return {
        row[0]: Traits(frozenset(_TYPED_GPU.findall(row[2])), _features(row[1]))
        for row in rows
        if len(row) == 3
    }


def _features(text: str) -> frozenset[str]:
    return frozenset() if text == "(null)" else frozenset(text.split(","))
