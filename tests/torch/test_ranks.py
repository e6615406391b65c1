"""The torch backend under DDP and FSDP2: two real ranks."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.torch import ranks
from tests.torch.needs import torch


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="ilv-ranks-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def test_ranks_that_are_moved_end_with_the_same_bits_and_leave_nothing(folder: Path) -> None:
    torch.multiprocessing.spawn(ranks.main, args=(str(folder),), nprocs=ranks.RANKS)

    same = {name: {"losses": True, "bits": True, "left": 0} for name in ranks.WRAPS}
    for rank in range(ranks.RANKS):
        assert json.loads((folder / str(rank)).read_text()) == same
