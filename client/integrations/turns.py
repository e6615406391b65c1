"""A job's turns where a framework runs the loop: all of it in one place of a step, and one rank acquires.

    with Turns.from_env().session("load") as turns:  # before the framework touches a device
        ...  # the framework's hook calls turns.boundary() once a step

Most frameworks use the devices between their "step end" and the next "step begin" (logging, validation,
saving, weight sync). So drain, yield and acquire stand in one call, and nothing else runs between.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from slurm_interleave.client.core.errors import InterleaveError
from slurm_interleave.client.integrations.ranks import Alone, Ranks, TorchRanks
from slurm_interleave.client.interleaver import Interleaver
from slurm_interleave.client.waiting import say


class Turns:
    """The turns of one process of a job: of its driver, or of a rank, whose first one acquires for all.

    Every call raises what `Interleaver` does; in the other ranks `InterleaveError` with that text. Outside an
    interleaved job all do nothing.
    """

    def __init__(
        self,
        interleaver: Interleaver,
        ranks: Ranks | None = None,
        drain: Callable[[], None] = lambda: None,
    ) -> None:
        """*ranks*: who else works for the job (none: nobody); *drain* ends what this process has to do."""
        self._interleaver = interleaver
        self._ranks = ranks or Alone()
        self._drain = drain
        self._holding = False
        self._fresh = False  # nothing was done since the grant

    @classmethod
    def from_env(
        cls, environ: Mapping[str, str] = os.environ, drain: Callable[[], None] = lambda: None
    ) -> Turns:
        """Return the turns of this process; torchrun and its like say which rank it is (RANK, WORLD_SIZE)."""
        ranks = TorchRanks.from_env(environ)
        return cls(Interleaver.from_env(environ), ranks, drain)

    @property
    def interleaver(self) -> Interleaver:
        """What acquires and yields."""
        return self._interleaver

    @property
    def active(self) -> bool:
        """Whether this process is in an interleaved job."""
        return self._interleaver.active

    @property
    def holding(self) -> bool:
        """Whether the job's devices are this process's to use now."""
        return self._holding or not self.active

    def start(self, phase: str = "") -> None:
        """Acquire, before the framework is there: process groups may not have been made yet."""
        if not self.active:
            self._interleaver.acquire(phase)  # says so, once
        elif not self._holding:
            self._acquire(phase)

    def boundary(self, phase: str = "", *, at_end: bool = False) -> None:
        """Drain, yield and acquire again; the first one after `start` keeps what that acquired.

        Call it in every rank, at the same place, where no rank has work of this step left. *at_end*: that
        is the end of a step, so that even the first one comes after work.
        """
        if not self.active:
            return
        if not self._holding:
            say("the framework reached its first step without the devices; call start() before it is made")
        if at_end or not self._fresh:
            self.leave()
            self._acquire(phase)
        self._fresh = False

    def leave(self) -> None:
        """Drain and yield. Stay off the devices until `boundary`, `start` or `session` has returned."""
        if not self.active or not self._holding:
            return
        self._drain()
        self._ranks.drain()
        self._holding = self._fresh = False
        if self._ranks.leads:
            self._interleaver.yield_()

    @contextmanager
    def session(self, phase: str = "") -> Iterator[Turns]:
        """Hold the devices for the body of a `with`, boundaries apart. Its exception is never replaced."""
        self.start(phase)
        try:
            yield self
        except BaseException:
            self.drop()
            raise
        self.leave()

    def drop(self) -> None:
        """Yield without waiting for the other ranks, of which some may have ended; never raises."""
        self._holding = self._fresh = False
        if self._ranks.leads:
            try:
                self._interleaver.yield_()
            except InterleaveError as error:
                say(f"the yield failed: {error}")

    def _acquire(self, phase: str) -> None:
        self._ranks.tell(lambda: self._lead(phase))
        self._holding = self._fresh = True

    def _lead(self, phase: str) -> None:
        self._interleaver.acquire(phase)
