"""A store in a file of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_interleave.sql import rows
from slurm_interleave.sql.store import Store, row_id


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/orchestrator.db"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = Store(url)
    yield opened
    opened.close()


def put(store: Store, *put_rows: rows.Row, epoch: int | None = None) -> None:
    store.record({row_id(row): row for row in put_rows}, store.epoch if epoch is None else epoch)
