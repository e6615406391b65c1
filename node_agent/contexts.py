"""What may be done with a job's context: the agent's decisions, without a clock, I/O or logging."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from typing_extensions import assert_never

from slurm_interleave.client.core.errors import Busy, JobFaulted, WrongState
from slurm_interleave.client.core.states import Context
from slurm_interleave.client.core.values import REASON_MAX

MOVING = frozenset({Context.SAVING, Context.RESTORING})


class Verb(str, Enum):
    """What is done to a context."""

    SNAPSHOT = "snapshot"  # device to host memory
    RESTORE = "restore"  # and back
    DISCARD = "discard"  # forget both


@dataclass(frozen=True)
class JobContext:
    """What the agent knows of a job's device state on this node."""

    state: Context = Context.NONE
    bytes: int = 0  # of the saved context
    fault: str = ""
    saved_by: str = ""  # names of who saved it, if not the node's backend alone; see `movers.py`
    kept: int = 0  # bytes that an application left on the devices when it suspended itself, or may have there
    spilled: bool = False  # it is saved on disk, or about to be
    in_memory: int = 0  # of what is spilled, bytes in host memory: of parts that cannot be saved on disk

    @property
    def memory_bytes(self) -> int:
        """Of the saved context, bytes in host memory; the rest is on disk."""
        return self.in_memory if self.spilled else self.bytes

    @property
    def in_app(self) -> bool:
        """Whether the application saved it, at least in part, in its own memory, where no backend looks."""
        return bool(self.saved_by)


@dataclass(frozen=True)
class Seen:
    """What a backend sees on the devices and in host memory."""

    state: Context
    bytes: int = 0  # saved, or else resident
    spilled: bool = False  # saved on disk


@dataclass(frozen=True)
class Outcome:
    """How an operation ended. *moved* is the bytes that went over, *error* is empty where it went well.

    Applications write errors too: longer ones are cut, or the node's agent could say no more to the
    orchestrator, for which a message has a size.
    """

    context: Context
    moved: int = 0
    error: str = ""
    kept: int = 0  # see `JobContext.kept`
    in_memory: int = 0  # see `JobContext.in_memory`

    def __post_init__(self) -> None:
        """Cut *error*."""
        if len(self.error) > REASON_MAX:
            object.__setattr__(self, "error", self.error[:REASON_MAX])

    @property
    def ok(self) -> bool:
        """Whether what was asked for is so now."""
        return not self.error


@dataclass(frozen=True)
class Run:
    """The backend is to do it; meanwhile the context is *during*."""

    during: Context


Decision = Run | Outcome


def reconciled(known: JobContext, seen: Seen | None) -> JobContext:
    """Return the truth of a job with no operation under way, after a restart too.

    *seen* is None where the backend cannot look; then a move that was cut short has not happened.
    """
    may_be_saved = known.state is Context.SAVED or known.state in MOVING
    if known.in_app and may_be_saved and seen is not None and _is_rest(known, seen):
        return replace(known, state=Context.SAVED)
    if seen is None:
        if known.state in MOVING:
            state = Context.RESIDENT if known.state is Context.SAVING else Context.SAVED
            return replace(known, state=state)
        return known
    if known.state is Context.FAULTED and seen.state is not Context.NONE:
        return known
    return JobContext(seen.state, seen.bytes if seen.state is Context.SAVED else 0, spilled=seen.spilled)


def is_left_by_app(known: JobContext, seen: Seen | None) -> bool:
    """Tell whether *seen* is no more than what an application left on the devices that is suspended."""
    return known.in_app and known.state is Context.SAVED and seen is not None and _is_rest(known, seen)


def _is_rest(known: JobContext, seen: Seen) -> bool:
    """Tell whether *seen* is no more than what the application left, to be saved by others or to stay."""
    if seen.state is Context.RESIDENT:
        return seen.bytes <= known.kept
    return seen.state in (Context.NONE, Context.SAVED)


def on_order(context: JobContext, verb: Verb) -> Decision:
    """Decide what an order of the orchestrator means. An order may be repeated, so what is so already is ok.

    Raises `Busy` while the context moves.
    """
    if context.state in MOVING:
        raise Busy(f"its device state is {context.state.value}")
    match verb:
        case Verb.DISCARD:
            return Run(during=context.state)
        case Verb.SNAPSHOT | Verb.RESTORE if context.state is Context.FAULTED:
            return Outcome(Context.FAULTED, error=context.fault or "faulted earlier")
        case Verb.SNAPSHOT:
            if context.state is Context.SAVED:
                return Outcome(Context.SAVED)
            return Run(during=Context.SAVING)  # even where nothing is known to be there: the backend looks
        case Verb.RESTORE:
            if context.state is Context.SAVED:
                return Run(during=Context.RESTORING)
            return Outcome(context.state)
        case _:
            assert_never(verb)


def on_call(context: JobContext, verb: Verb, *, in_place: bool = False) -> Decision:
    """Decide what a call of the v1alpha1 service means, by its table of states.

    *in_place*: it copies to or from what is on the devices, and the context stays there.
    An `Outcome` stands for "already so". Raises `Busy`, `JobFaulted`, `WrongState`.
    """
    if context.state in MOVING:
        raise Busy(f"its device state is {context.state.value}; try again when that is done")
    if context.state is Context.FAULTED:
        raise JobFaulted(
            f"its device state is lost ({context.fault}); `interleave clear` discards the rest of it"
        )
    if context.state is Context.NONE or (verb is Verb.SNAPSHOT and context.state is Context.SAVED):
        held = "on the devices" if context.state is Context.NONE else "there that is not saved already"
        raise WrongState(f"{verb.value}: the job is {context.state.value}: it has nothing {held}")
    if in_place and context.state is Context.SAVED:
        raise WrongState(
            f"{verb.value}: the job is saved: ranges of memory are copied while it is on the devices"
        )
    if verb is Verb.RESTORE and context.state is Context.RESIDENT and not in_place:
        return Outcome(Context.RESIDENT)
    return Run(during=Context.SAVING if verb is Verb.SNAPSHOT else Context.RESTORING)


def after(
    outcome: Outcome, verb: Verb, before: JobContext, *, saved_by: str, spilled: bool = False
) -> JobContext:
    """Return what is known once an operation has ended; *saved_by*, *spilled*: see `JobContext`."""
    if verb is Verb.DISCARD and not outcome.ok and before.state is Context.FAULTED:
        return before
    match outcome.context:
        case Context.FAULTED:
            return JobContext(Context.FAULTED, before.bytes, outcome.error)
        case Context.SAVED:
            if verb is Verb.SNAPSHOT and outcome.ok:
                kept, in_memory = outcome.kept, outcome.in_memory
                return JobContext(Context.SAVED, outcome.moved, "", saved_by, kept, spilled, in_memory)
            return replace(before, state=Context.SAVED)
        case _:
            return JobContext(outcome.context)


def after_raise(before: JobContext, seen: Seen | None, error: str) -> Outcome:
    """Return how a move ended whose mover raised *error*, where the backend has *seen* the state since.

    It is lost only if nobody can see it, or if what was there before is gone.
    """
    if (
        seen is None
        or seen.state in MOVING
        or (seen.state is Context.NONE and before.state is not seen.state)
    ):
        return Outcome(Context.FAULTED, error=error)
    return Outcome(seen.state, error=error)


def is_same_attempt(
    context: JobContext, *, same_request: bool, had_processes: bool, has_processes: bool
) -> bool:
    """Tell a prolog that runs twice from a job that Slurm starts again while its end was never heard of."""
    if not same_request:
        return False
    return has_processes or not (had_processes or context.state is not Context.NONE)
