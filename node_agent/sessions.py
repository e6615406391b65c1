"""Which processes hold a connection to a unix socket of this host: gRPC does not say who calls.

Sources: sock_diag(7), UNIX_DIAG of linux/unix_diag.h and linux/sock_diag.h.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

_SOCK_DIAG = 4  # NETLINK_SOCK_DIAG
_BY_FAMILY = 20  # SOCK_DIAG_BY_FAMILY
_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_DONE, _ERROR = 3, 2
_SHOW_NAME, _SHOW_PEER = 1, 4
_NAME, _PEER = 0, 2  # UNIX_DIAG_NAME, UNIX_DIAG_PEER
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBHIIIII")
_FOUND = 16  # bytes of struct unix_diag_msg
_ALL = 0xFFFFFFFF


def of(path: Path, pids: Iterable[int]) -> list[int]:
    """Return those of *pids* that are connected to the socket at *path*.

    Raises `OSError` where the kernel does not tell.
    """
    ends = {f"socket:[{inode}]" for inode in _client_ends(os.fsencode(path))}
    return [pid for pid in pids if ends and not ends.isdisjoint(_open_files(pid))]


def _open_files(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):  # it has ended, or is another user's
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                yield str(entry.readlink())


def _client_ends(path: bytes) -> Iterator[int]:
    """Yield the inodes at the other ends of what the server at *path* has accepted."""
    request = _REQUEST.pack(socket.AF_UNIX, 0, 0, _ALL, 0, _SHOW_NAME | _SHOW_PEER, _ALL, _ALL)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.send(_HEADER.pack(_HEADER.size + len(request), _BY_FAMILY, _DUMP, 1, 0) + request)
        while True:
            for kind, body in _messages(kernel.recv(1 << 16)):
                if kind == _ERROR:
                    number = -struct.unpack_from("=i", body)[0]
                    raise OSError(number, os.strerror(number))
                if kind == _DONE:
                    return
                about = dict(_attributes(body[_FOUND:]))
                if about.get(_NAME, b"").rstrip(b"\0") == path and _PEER in about:
                    yield struct.unpack("=I", about[_PEER])[0]


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    while data:
        length, kind, *_ = _HEADER.unpack_from(data)
        yield kind, data[_HEADER.size : length]
        data = data[(length + 3) & ~3 :]


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while data:
        length, kind = struct.unpack_from("=HH", data)
        yield kind, data[4:length]
        data = data[(length + 3) & ~3 :]
