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


def test_rank_0_asks_and_no_rank_is_moved_while_any_may_work(told: list[dict[str, Any]]) -> None:
    seen = {"busy": True, "away": 0, "moves": 1}
    asked = {"asked": ["first", "second", "back"], "yielded": [1, 2, 3]}

    assert [each["turns"] for each in told] == [seen | asked, seen | {"asked": [], "yielded": []}]
