"""An interleaver that only writes down what it is asked, beside what a framework does."""

from __future__ import annotations

from collections.abc import Callable

from slurm_interleave.client import Lease
from slurm_interleave.client.core.errors import InterleaveError
from slurm_interleave.client.integrations.turns import Turns
from slurm_interleave.client.interleaver import Interleaver


class Traced(Interleaver):
    """Grants at once. `trace` has all in order; work on a device without a lease fails the test."""

    def __init__(self, tell: Callable[[str], None] | None = None) -> None:
        super().__init__(None)
        self.trace: list[str] = []
        self._now: Lease | None = None
        self._tell = tell or self.trace.append
        self.refuses = ""

    @property
    def active(self) -> bool:
        return True

    @property
    def lease(self) -> Lease | None:
        return self._now

    def acquire(self, phase: str = "", timeout: float | None = None) -> Lease:
        if self.refuses:
            raise InterleaveError(self.refuses)
        if self._now is None:
            self._tell(f"acquire {phase}".strip())
            self._now = Lease(epoch=1, waited_s=0.0, context_restored=False, switch_s=0.0)
        return self._now

    def yield_(self) -> None:
        if self._now is not None:
            self._tell("yield")
        self._now = None

    def work(self, what: str) -> None:
        """Use the device for *what*."""
        assert self._now is not None, f"{what} without a lease, after {self.trace}"
        self._tell(what)


def traced() -> tuple[Turns, Traced]:
    """Return turns of a driver, and the trace that they leave."""
    interleaver = Traced()
    return Turns(interleaver), interleaver
