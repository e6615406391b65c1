"""Several things at a time, but not all."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any


async def side_by_side(work: Iterable[Coroutine[Any, Any, None]], most: int) -> None:
    """Do all of *work*, begun in its order, *most* at a time. The first error ends it, and is raised."""
    left = iter(work)
    tasks = [asyncio.create_task(_one_by_one(left)) for _ in range(most)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _one_by_one(left: Iterator[Coroutine[Any, Any, None]]) -> None:
    for one in left:
        await one
