"""Whether an application that says it is suspended did leave the devices: a word or a 200 is no proof."""

from __future__ import annotations

import asyncio

from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent.backends.protocol import Backend, Target
from slurm_interleave.node_agent.contexts import Outcome, Seen

_LOOK_S = 0.05  # between two looks, where memory may come free late


class Freed:
    """What a job has on its devices now, to compare with what it has after it was told to suspend."""

    def __init__(
        self,
        backend: Backend,
        target: Target,
        before: Seen | None,
        *,
        partial: bool = False,
        leaves_rest: bool = False,
    ) -> None:
        """*partial*: only some regions are to go; *leaves_rest*: another mover takes what stays."""
        self._backend = backend
        self._target = target
        self._before = before
        self._partial = partial
        self._leaves_rest = leaves_rest
        self._left: Seen | None = None

    @classmethod
    async def begin(
        cls, backend: Backend, target: Target, *, partial: bool = False, leaves_rest: bool = False
    ) -> Freed:
        """Look, before it is told."""
        before = await look(backend, target.job)
        return cls(backend, target, before, partial=partial, leaves_rest=leaves_rest)

    async def verified(self, patience_s: float) -> str:
        """Look until enough is free, for *patience_s* seconds or what the devices take to settle.

        Return what is wrong, or nothing.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + max(patience_s, self._backend.settles_s)
        while error := await self._look():
            if loop.time() >= until:
                break
            await asyncio.sleep(_LOOK_S)
        return error

    async def all_there(self) -> bool:
        """Tell whether no byte has left the devices since the begin; False where that cannot be seen."""
        now = _resident(await look(self._backend, self._target.job))
        return now >= _resident(self._before) > 0

    def outcome(self) -> Outcome:
        """Return the outcome of a snapshot that was verified."""
        before = self._before.bytes if self._before else 0
        left = _resident(self._left)
        # What it may keep it may also take later, as a context grows that had all but nothing to do.
        kept = left if self._leaves_rest else max(left, self._may_keep)
        return Outcome(Context.SAVED, max(0, before - left), kept=kept)

    @property
    def _may_keep(self) -> int:
        return self._backend.keeps_bytes * max(1, len(self._target.devices))

    async def _look(self) -> str:
        try:
            self._left = await self._backend.look_now(self._target.job)
        except OSError as error:
            return f"job {self._target.job} said that it is suspended, but that cannot be seen: {error}"
        left, before = _resident(self._left), _resident(self._before)
        if self._leaves_rest:
            return ""
        return still_there(
            self._target.job,
            before,
            left,
            self._may_keep,
            any_less=self._partial,
        )


async def look(backend: Backend, job: str) -> Seen | None:
    """Return what *job* has now, or, where that cannot be seen, what was seen last."""
    try:
        return await backend.look_now(job)
    except OSError:
        return backend.look(job)


def still_there(job: str, before: int, left: int, keeps: int, *, any_less: bool) -> str:
    """Return what is wrong if *left* of *before* bytes are on the devices still; empty: nothing.

    *keeps* is what it may keep; with *any_less* it is enough that it is less than before.
    """
    if left <= keeps or (any_less and left < before):
        return ""
    return f"job {job} said that it is suspended, but {left} bytes are on its devices still"


def _resident(seen: Seen | None) -> int:
    return seen.bytes if seen is not None and seen.state is Context.RESIDENT else 0
