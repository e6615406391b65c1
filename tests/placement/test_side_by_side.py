from __future__ import annotations

import asyncio

import pytest

from slurm_interleave.orchestrator.placement.side_by_side import side_by_side


class Work:
    """Counts what is under way."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.done: list[int] = []
        self.most = 0

    async def one(self, number: int, error: Exception | None = None) -> None:
        self.begun.append(number)
        self.most = max(self.most, len(self.begun) - len(self.done))
        await asyncio.sleep(0)
        if error is not None:
            raise error
        self.done.append(number)


async def test_all_is_done_in_order_and_no_more_at_a_time_than_allowed() -> None:
    work = Work()

    await side_by_side((work.one(number) for number in range(20)), 3)

    assert work.begun == work.done == list(range(20))
    assert work.most == 3


async def test_the_first_error_is_raised_and_nothing_is_begun_after_it() -> None:
    work = Work()
    errors = {4: OSError("no")}

    with pytest.raises(OSError, match="no"):
        await side_by_side((work.one(number, errors.get(number)) for number in range(20)), 2)

    assert max(work.begun) < 8
