"""The torch backend under DDP and FSDP2: two real ranks."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.torch import ranks
from tests.torch.needs import torch


@pytest.fixture(scope="module")
def told() -> Iterator[list[dict[str, Any]]]:
    path = Path(tempfile.mkdtemp(prefix="ilv-ranks-"))
    torch.multiprocessing.spawn(ranks.main, args=(str(path),), nprocs=ranks.RANKS)
    yield [json.loads((path / str(rank)).read_text()) for rank in range(ranks.RANKS)]
    shutil.rmtree(path, ignore_errors=True)


def test_ranks_that_are_moved_end_with_the_same_bits_and_leave_nothing(told: list[dict[str, Any]]) -> None:
    same = {name: {"losses": True, "bits": True, "left": 0} for name in ranks.WRAPS}

    assert [each["moved"] for each in told] == [same, same]


def test_rank_0_asks_and_all_hold_the_lease(told: list[dict[str, Any]]) -> None:
    first, second = (each["turns"] for each in told)

    for seen in (first, second):
        assert seen["epochs"] == [1, 2]
        assert (seen["busy"], seen["held after"], seen["suspended in a turn"]) == (True, False, 0)
    assert (first["asked"], first["yielded"]) == (["first", "second", "back"], [1, 2, 3])
    assert (second["asked"], second["yielded"]) == ([], [])


def test_ranks_hear_why_rank_0_was_refused(told: list[dict[str, Any]]) -> None:
    first, second = (each["turns"]["refused"] for each in told)

    assert first == "its state is lost"
    assert second == "rank 0 was not granted the devices: JobFaulted: its state is lost"


def test_ranks_that_are_registered_as_different_jobs_are_refused(told: list[dict[str, Any]]) -> None:
    for each in told:
        assert "registered as different jobs (user-0, user-1)" in each["jobs"]
