"""Ranges of device memory as tags of a command on the workload channel, which has no field for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slurm_interleave.client.core.errors import BadArgument

SNAPSHOT_TAG = "snapshot:"
SPILL_TAG = "spill:"  # and a folder on disk, where what is saved by this command goes
_RANGE_TAG = "region:"


def as_tags(name: str, ranges: Iterable[tuple[int, int]]) -> list[str]:
    """Return the tags for the snapshot *name* of *ranges*, each an address and a size in bytes."""
    return [f"{SNAPSHOT_TAG}{name}", *(f"{_RANGE_TAG}{address:#x}+{size}" for address, size in ranges)]


def parse_ranges(tags: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """Return the name and the ranges. Raises `BadArgument` for any other tag, and if there are no ranges."""
    name, ranges = "", []
    for tag in tags:
        if tag.startswith(SNAPSHOT_TAG):
            name = tag.removeprefix(SNAPSHOT_TAG)
        else:
            ranges.append(_range(tag))
    if not name or not ranges:
        raise BadArgument(f"tags {list(tags)}: a snapshot of ranges needs a name and at least one range")
    return name, ranges


def _range(tag: str) -> tuple[int, int]:
    address, plus, size = tag.removeprefix(_RANGE_TAG).partition("+")
    try:
        found = int(address, 16), int(size)
    except ValueError:
        found = (0, 0)
    if not tag.startswith(_RANGE_TAG) or not plus or found[0] < 0 or found[1] <= 0:
        raise BadArgument(f"{tag!r} is no range, as region:0x7f00+4096")
    return found
