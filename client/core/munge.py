"""MUNGE credentials through libmunge.so.2: who made it (uid, gid) and a payload nobody could change.

Source of the calls and codes: munge(3), munge_ctx(3) and munge_enum(3) of MUNGE 0.5.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass

from slurm_interleave.client.core.errors import ConfigError, NotAuthenticated

_OPT_SOCKET = 8  # MUNGE_OPT_SOCKET of munge_opt
_SUCCESS = 0
_ADVICE = {
    6: "start munged, or name its socket with munge_socket",
    14: "the MUNGE keys of the two hosts differ: copy /etc/munge/munge.key of the cluster",
    15: "it is more than five minutes old by the clock here: check the time (NTP) of both hosts, try again",
    16: "it comes from the future by the clock here: check the time (NTP) of both hosts, then try again",
    17: "it was used before, by a program that repeats a call or by somebody who copied it; each call needs "
    "a new one",
}


@dataclass(frozen=True)
class Identity:
    """Who made a credential."""

    uid: int
    gid: int


@functools.cache
def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libmunge.so.2", use_errno=True)
    except OSError as error:
        raise ConfigError(
            f"libmunge.so.2 cannot be loaded ({error}); install MUNGE (Debian: libmunge2), "
            "or set auth otherwise"
        ) from error
    library.munge_strerror.restype = ctypes.c_char_p
    library.munge_ctx_strerror.restype = ctypes.c_char_p
    library.munge_ctx_strerror.argtypes = [ctypes.c_void_p]
    library.munge_ctx_create.restype = ctypes.c_void_p
    library.munge_ctx_destroy.argtypes = [ctypes.c_void_p]
    return library


def _free(pointer: ctypes.c_void_p) -> None:
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]
    free(pointer)


class _Context:
    """A munge_ctx_t that names the socket of munged; None inside means munged's own default."""

    def __init__(self, socket: str) -> None:
        self._library = _library()
        self.pointer: int | None = None
        if socket:
            self.pointer = self._library.munge_ctx_create()
            self._library.munge_ctx_set(
                ctypes.c_void_p(self.pointer), ctypes.c_int(_OPT_SOCKET), ctypes.c_char_p(socket.encode())
            )

    def __enter__(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.pointer)

    def __exit__(self, *exc: object) -> None:
        if self.pointer:
            self._library.munge_ctx_destroy(ctypes.c_void_p(self.pointer))


def encode(payload: bytes, socket: str = "") -> str:
    """Return a credential of this process's user that carries *payload*. Raises `NotAuthenticated`."""
    library, text = _library(), ctypes.c_void_p()
    with _Context(socket) as context:
        code = library.munge_encode(ctypes.byref(text), context, payload, ctypes.c_int(len(payload)))
        _check("encode", code, context)
    try:
        return (ctypes.string_at(text) if text.value else b"").decode()
    finally:
        _free(text)


def decode(credential: str, socket: str = "") -> tuple[Identity, bytes]:
    """Return who made *credential* and its payload. Raises `NotAuthenticated`, also for a replay."""
    library = _library()
    buffer, length = ctypes.c_void_p(), ctypes.c_int()
    uid, gid = ctypes.c_uint32(), ctypes.c_uint32()
    with _Context(socket) as context:
        code = library.munge_decode(
            ctypes.c_char_p(credential.encode()),
            context,
            ctypes.byref(buffer),
            ctypes.byref(length),
            ctypes.byref(uid),
            ctypes.byref(gid),
        )
        payload = ctypes.string_at(buffer, length.value) if buffer.value else b""
        _free(buffer)
        _check("decode", code, context)
    return Identity(uid.value, gid.value), payload


def _check(verb: str, code: int, context: ctypes.c_void_p) -> None:
    if code == _SUCCESS:
        return
    library = _library()
    detail = library.munge_ctx_strerror(context) if context.value else None
    reason = (detail or library.munge_strerror(ctypes.c_int(code))).decode()
    advice = _ADVICE.get(code)
    raise NotAuthenticated(
        f"MUNGE could not {verb} a credential: {reason}" + (f"; {advice}" if advice else "")
    )
