"""What the orchestrator sends fits into the messages that clients take."""

from __future__ import annotations

import pytest

from slurm_interleave.orchestrator.services.pages import slice_pages
from slurm_interleave.sql.days import day_of
from slurm_interleave.sql.rows import Day, Slice
from slurm_interleave.sql.slices import PAGE
from tests.sql.given import slice_of

GRPC_TAKES = 4 << 20


def turn(epoch: int, nodes: int) -> Slice:
    names = tuple(f"gpu{node:04}" for node in range(nodes))
    return slice_of(epoch, nodes=names, devices=tuple(f"{name}/{i}" for name in names for i in range(8)))


@pytest.mark.parametrize("nodes", [1, 256, 5000])
@pytest.mark.parametrize("summed", [False, True])
def test_a_page_of_jobs_of_many_nodes_is_sent_in_parts_that_every_client_takes(
    nodes: int, summed: bool
) -> None:
    count = PAGE if nodes < 1000 else 5
    page: list[Slice | Day] = [turn(epoch, nodes) for epoch in range(1, count + 1)]
    if summed:
        page = [day_of(row) for row in page if isinstance(row, Slice)]

    sent = list(slice_pages(page))

    epochs = [item.epoch for part in sent for item in (*part.slices, *(day.slice for day in part.days))]
    assert epochs == [row.epoch for row in page]
    assert max(part.ByteSize() for part in sent) < GRPC_TAKES
    assert len(sent) == 1 if nodes == 1 else len(sent) > 1
