"""SGLang engines in the job's own process: the node's agent has them release their memory between turns.

    engine = sglang.attach(Engine(..., enable_memory_saver=True), turns, discard=True)

For servers, `interleave endpoints sglang URL` names them and the agent calls them over HTTP. What stays on
the device is the cuda backend's: --interleave-backend=app_channel,cuda.

Source: SGLang 0.5.23 `entrypoints/engine.py`: without enable_memory_saver the calls succeed and free nothing;
weights are kept with enable_weights_cpu_backup alone; what was not released may not be resumed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from slurm_interleave.client.core.errors import BadArgument, WrongState
from slurm_interleave.client.interleaver import Interleaver
from slurm_interleave.client.workload import Rank, Workload


class Released:
    """An engine as the agent moves it. Both ways may be repeated."""

    tags: Sequence[str] = ()
    can_discard = True
    arena_bytes = 0  # SGLang has host memory of its own

    def __init__(self, engine: Any, busy: Callable[[], bool]) -> None:
        """*busy*: not now."""
        self._engine, self._busy = engine, busy
        self._away = False
        self._lock = threading.Lock()
        self.workload: Workload | None = None

    def suspend(self, tags: Sequence[str], *, discard: bool) -> None:
        """Release the memory. Raises `WrongState`, and what SGLang does."""
        with self._lock:
            if self._busy():
                raise WrongState("this process holds its lease and may be at work; yield first")
            if not self._away:
                self._engine.release_memory_occupation()
                self._away = True

    def resume(self, tags: Sequence[str]) -> None:
        """Take the memory again. Raises what SGLang does."""
        with self._lock:
            if self._away:
                self._engine.resume_memory_occupation()
                self._away = False

    def close(self) -> None:
        """Take no more commands, and take the memory again."""
        if self.workload is not None:
            self.workload.close()
        self.resume(())


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
    attached = Released(engine, lambda: interleaver.lease is not None)
    attached.workload = Workload.from_env(attached, rank)
    interleaver.on_grant(lambda: attached.resume(()))
    return attached
