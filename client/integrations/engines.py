"""What inference engines in the job's own process have in common, as the node's agent moves them."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from slurm_interleave.client.core.errors import WrongState
from slurm_interleave.client.interleaver import Interleaver
from slurm_interleave.client.workload import Rank, Workload


class MovedEngine(ABC):
    """An engine that leaves the devices with all that it has, and comes back. Both may be repeated."""

    tags: Sequence[str] = ()
    can_discard = True  # weights that are pushed again before they are used
    arena_bytes = 0  # engines have host memory of their own

    def __init__(self, busy: Callable[[], bool]) -> None:
        """*busy*: not now."""
        self._busy = busy
        self._away = False
        self._lock = threading.Lock()
        self.workload: Workload | None = None

    def suspend(self, tags: Sequence[str], *, discard: bool) -> None:
        """Leave; *discard*: without the weights. Raises `WrongState`, and what the engine does."""
        with self._lock:
            if self._busy():
                raise WrongState("this process holds its lease and may be at work; yield first")
            if not self._away:
                self._leave(discard=discard)
                self._away = True

    def resume(self, tags: Sequence[str]) -> None:
        """Come back. Raises what the engine does."""
        with self._lock:
            if self._away:
                self._come_back()
                self._away = False

    def close(self) -> None:
        """Take no more commands; within a turn come back, else stay away: the devices are another job's."""
        if self.workload is not None:
            self.workload.close()
        if self._busy():
            self.resume(())

    @abstractmethod
    def _leave(self, *, discard: bool) -> None:
        """Have the engine free what it has on the devices."""

    @abstractmethod
    def _come_back(self) -> None:
        """Have the engine take it again."""


Engine = TypeVar("Engine", bound=MovedEngine)


def attached(engine: Engine, interleaver: Interleaver, rank: Rank | None) -> Engine:
    """Return *engine*, which the agent of this node moves from now on and each grant brings back."""
    engine.workload = Workload.from_env(engine, rank)
    interleaver.on_grant(lambda: engine.resume(()))
    return engine
