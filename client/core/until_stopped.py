"""How both daemons run: until a signal ends them."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Coroutine
from typing import Any

from slurm_interleave.client.core import garbage
from slurm_interleave.client.core.threads import Threads

log = logging.getLogger(__name__)
_NO_FILES = "socket.accept() out of system resource"
_SELDOM_S = 60.0


class Complaints:
    """Logs what an event loop says of errors: seldom that no more files can be opened.

    asyncio tries to accept again and again then, and says so a hundred times a second, with a traceback.
    """

    def __init__(self) -> None:
        self._told = float("-inf")

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log what *context* has."""
        if not str(context.get("message")).startswith(_NO_FILES):
            loop.default_exception_handler(context)
        elif loop.time() - self._told > _SELDOM_S:
            self._told = loop.time()
            todo = "look who holds its connections; raise LimitNOFILE of its unit"
            log.error("files.exhausted", extra={"reason": str(context.get("exception")), "todo": todo})


async def until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Do *work* until SIGTERM or SIGINT ends it; what it raises ends it too."""
    serving = asyncio.create_task(work)
    garbage.look_seldom()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(Threads())
    loop.set_exception_handler(Complaints())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, serving.cancel)
    try:
        await serving
    except asyncio.CancelledError:
        log.info("stopped")
