"""SGLang engines in the job's own process: the node's agent has them release their memory between turns.

    engine = sglang.attach(Engine(..., enable_memory_saver=True), turns, discard=True)

For servers, `interleave endpoints sglang URL` names them and the agent calls them over HTTP. What stays on
the device is the cuda backend's: --interleave-backend=app_channel,cuda.

Source: SGLang 0.5.23 `entrypoints/engine.py`: without enable_memory_saver the calls succeed and free nothing;
weights are kept with enable_weights_cpu_backup alone; what was not released may not be resumed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.client.integrations.engines import MovedEngine, attached
from slurm_interleave.client.interleaver import Interleaver
from slurm_interleave.client.workload import Rank


class Released(MovedEngine):
    """An engine that releases its memory."""

    def __init__(self, engine: Any, busy: Callable[[], bool]) -> None:
        """*busy*: not now."""
        super().__init__(busy)
        self._engine = engine

    def _leave(self, *, discard: bool) -> None:
        self._engine.release_memory_occupation()

    def _come_back(self) -> None:
        self._engine.resume_memory_occupation()


def attach(
    engine: Any, interleaver: Interleaver, *, discard: bool = False, rank: Rank | None = None
) -> Released:
    """Have the agent of this node release and resume the memory of *engine*, if the job is interleaved.

    *discard*: the weights need not be kept, as they are pushed before the next use. Raises `BadArgument` for
    an engine that would free nothing, or lose weights that it needs.
    """
    settings = getattr(engine, "server_args", None)
    if not getattr(settings, "enable_memory_saver", False):
        raise BadArgument("the engine was made without enable_memory_saver=True: it would free nothing")
    if not discard and not getattr(settings, "enable_weights_cpu_backup", False):
        raise BadArgument(
            "the engine would lose its weights: make it with enable_weights_cpu_backup=True, or attach it "
            "with discard=True if you push them before each use"
        )
    return attached(Released(engine, lambda: interleaver.lease is not None), interleaver, rank)
