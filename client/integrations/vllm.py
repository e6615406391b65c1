"""vLLM engines in the job's own process: the node's agent has them sleep while another job has its turn.

    engine = vllm.attach(LLM(..., enable_sleep_mode=True), turns)  # made while the devices are held

For servers, `interleave endpoints vllm URL` names them and the agent calls them over HTTP. What sleep
leaves on the device (context, NCCL, CUDA graphs) is the cuda backend's:
--interleave-backend=app_channel,cuda. A sleep backend within vLLM could not do that: its worker looks at the
device after it went to sleep.

Source: vLLM 0.22 to 0.33 `entrypoints/llm.py`, `v1/engine/async_llm.py`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.client.integrations.engines import MovedEngine, attached
from slurm_interleave.client.interleaver import Interleaver
from slurm_interleave.client.workload import Rank

_LIMIT_S = 600.0


class Engine(MovedEngine):
    """An engine that sleeps."""

    def __init__(
        self, engine: Any, busy: Callable[[], bool], loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        """*busy*: not now; *loop*: where the engine's calls are coroutines (`AsyncLLM`)."""
        if missing := [name for name in ("sleep", "wake_up") if not hasattr(engine, name)]:
            raise BadArgument(f"{type(engine).__name__} has no {missing[0]}: it is no vLLM that can sleep")
        if loop is None and inspect.iscoroutinefunction(engine.sleep):
            raise BadArgument("the engine is asynchronous: attach it with loop=asyncio.get_running_loop()")
        super().__init__(busy)
        self._engine, self._loop = engine, loop

    def _leave(self, *, discard: bool) -> None:
        # An engine that serves others finishes what it has; in process nothing runs between two calls.
        waits = self._loop is not None and "mode" in inspect.signature(self._engine.sleep).parameters
        try:
            self._do(self._engine.sleep, level=2 if discard else 1, **({"mode": "wait"} if waits else {}))
        except BaseException:
            self._come_back()
            raise

    def _come_back(self) -> None:
        self._do(self._engine.wake_up)

    def _do(self, call: Callable[..., Any], **arguments: Any) -> None:
        done = call(**arguments)
        if self._loop is not None and inspect.isawaitable(done):
            asyncio.run_coroutine_threadsafe(_awaited(done), self._loop).result(_LIMIT_S)


async def _awaited(done: Any) -> Any:
    return await done


def attach(
    engine: Any,
    interleaver: Interleaver,
    *,
    rank: Rank | None = None,
    loop: asyncio.AbstractEventLoop | None = None,
) -> Engine:
    """Have the agent of this node put *engine* to sleep and wake it, if the job is interleaved.

    Each `acquire` of *interleaver* makes sure that it is awake. With an asynchronous engine call `acquire` in
    a thread of its own (`asyncio.to_thread`). Raises `BadArgument` for what cannot sleep.
    """
    return attached(Engine(engine, lambda: interleaver.lease is not None, loop), interleaver, rank)
