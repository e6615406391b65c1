"""How both daemons run: until a signal ends them."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Coroutine
from typing import Any

from slurm_interleave.client.core import garbage

log = logging.getLogger(__name__)


async def until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Do *work* until SIGTERM or SIGINT ends it; what it raises ends it too."""
    serving = asyncio.create_task(work)
    garbage.look_seldom()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, serving.cancel)
    try:
        await serving
    except asyncio.CancelledError:
        log.info("stopped")
