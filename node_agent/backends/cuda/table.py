"""What the driver's answers mean: the states of a process, and what follows from a call that failed."""

from __future__ import annotations

from enum import Enum, IntEnum


class State(IntEnum):
    """CUprocessState. The last two belong to an operation of somebody else: they are never touched."""

    RUNNING = 0
    LOCKED = 1
    CHECKPOINTED = 2
    FAILED = 3
    CHECKPOINTING = 4
    RESTORING = 5


class Call(str, Enum):
    """What is done to one process."""

    LOCK = "lock"
    CHECKPOINT = "checkpoint"
    RESTORE = "restore"
    UNLOCK = "unlock"


class Verdict(Enum):
    """How a call ended."""

    DONE = "done"
    GONE = "gone"  # it has ended, or has nothing on a device: it counts no more
    REFUSED = "refused"  # its state is known, and not the one wanted: the others are brought back
    LOST = "lost"  # nobody can say what it has, or it can never come back


TO = {
    Call.LOCK: State.LOCKED,
    Call.CHECKPOINT: State.CHECKPOINTED,
    Call.RESTORE: State.LOCKED,
    Call.UNLOCK: State.RUNNING,
}
NO_CUDA = frozenset({3, 304})  # not initialized; the operating system's error for a process that is gone
OUT_OF_MEMORY, NOT_INITIALIZED, ILLEGAL_STATE, NOT_READY, NOT_SUPPORTED = 2, 3, 401, 600, 801
NEVER = frozenset({800, 801})  # not permitted, not supported: so it stays
_MEANINGS = {
    1: "the map of devices is not complete, or its processes share memory (legacy CUDA IPC)",
    2: "out of memory: host memory for a copy of the device's is short; MIG ends like this too",
    3: "not initialized",
    304: "the operating system refused",
    401: "not possible in this state",
    600: "its work on the devices did not end in time",
    800: "not permitted",
    801: "not supported: managed (UVM) memory, memory exported to other processes, NVLS multicast or "
    "legacy CUDA IPC is in use",
}


def judge(call: Call, code: int | None, asked: tuple[int, int] | None, *, ended: bool) -> Verdict:
    """Say how *call* ended.

    *code* is the driver's, None where the helper was lost with the call: then it may have reached the
    driver, and is not made again. *asked* is the code and the state that the driver gave when it was asked
    after a failure, None where it gave no answer. *ended*: the process has.
    """
    if code == 0:
        return Verdict.DONE
    if ended:
        return Verdict.GONE
    if asked is None or asked[0] != 0:
        unknown = asked is not None and asked[0] in NO_CUDA
        return Verdict.GONE if unknown and call is Call.LOCK else Verdict.LOST
    return _by_state(call, code, asked[1])


def towards(goal: State, state: int) -> Call | None:
    """Return the next call that brings a process from *state* to *goal*, None at the goal.

    Raises `ValueError` for a state that leads nowhere.
    """
    if state == goal:
        return None
    match state:
        case State.RUNNING:
            return Call.LOCK
        case State.LOCKED:
            return Call.CHECKPOINT if goal is State.CHECKPOINTED else Call.UNLOCK
        case State.CHECKPOINTED:
            return Call.RESTORE
        case _:
            raise ValueError(f"its state is {state}")


def meaning(code: int | None, limit_s: float) -> str:
    """Return what a code of the driver means for a user; None: there was no answer."""
    if code is None:
        return f"no answer within {limit_s:.0f} s, or its helper was killed"
    return f"{_MEANINGS[code]} (error {code})" if code in _MEANINGS else f"error {code}"


def device_map(devices: list[str], old: list[str], new: list[str]) -> list[tuple[str, str]]:
    """Return the new device of every one of *devices*, as the driver wants it; empty: all stay.

    What is not named in *old* and *new* stays where it can.
    """
    if old == new:
        return []
    pairs = dict(zip(old, new, strict=True))
    free = [uuid for uuid in devices if uuid not in new]
    for uuid in devices:
        if uuid not in pairs and uuid in free:
            pairs[uuid] = uuid
            free.remove(uuid)
    left = [uuid for uuid in devices if uuid not in pairs]
    return [(uuid, pairs.get(uuid) or free[left.index(uuid)]) for uuid in devices]


def _by_state(call: Call, code: int | None, state: int) -> Verdict:
    if state == TO[call] or (call is Call.LOCK and state == State.CHECKPOINTED):
        return Verdict.DONE  # it was carried out though nobody said so, or by an earlier agent
    # After an out-of-memory restore no later one succeeds, though the state says that it could.
    if call is Call.RESTORE and code == OUT_OF_MEMORY:
        return Verdict.LOST
    known = state in (State.RUNNING, State.LOCKED, State.CHECKPOINTED)
    return Verdict.REFUSED if known else Verdict.LOST
