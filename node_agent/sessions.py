"""Which processes hold a connection to a unix socket of this host, and its end: gRPC does not say who calls.

Sources: sock_diag(7), UNIX_DIAG of linux/unix_diag.h and linux/sock_diag.h.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
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
_INODE = 4  # of them, where the socket's own inode stands
_GONE_S, _LOOK_S = 5.0, 0.05  # how long a client may take to notice that its connection has ended
_ALL = 0xFFFFFFFF


def of(path: Path, pids: Iterable[int]) -> list[int]:
    """Return those of *pids* that are connected to the socket at *path*.

    Raises `OSError` where the kernel does not tell.
    """
    ends = {theirs for _, theirs in _connections(path)}
    return [pid for pid in pids if ends and not ends.isdisjoint(_open_files(pid))]


@contextlib.asynccontextmanager
async def unplugged(path: Path, pids: Sequence[int]) -> AsyncIterator[None]:
    """End what *pids* have open to the socket of this process at *path*; in the block nobody connects to it.

    Who is connected besides stays so. Raises `OSError` where the kernel does not tell.
    """
    aside = path.with_name(f".{path.name}")
    with contextlib.suppress(FileNotFoundError):  # it could not be served
        os.rename(path, aside)  # noqa: PTH104 - takes no time
    try:
        await asyncio.to_thread(_cut_all, path, pids)
        yield
    finally:
        with contextlib.suppress(FileNotFoundError):  # or the job has ended meanwhile
            os.rename(aside, path)  # noqa: PTH104


def _cut_all(path: Path, pids: Sequence[int]) -> None:
    """End the connections of *pids*, and wait until the clients have let go of them, for some time."""
    last = time.monotonic() + _GONE_S
    while _cut(path, pids) and time.monotonic() < last:
        time.sleep(_LOOK_S)


def _cut(path: Path, pids: Sequence[int]) -> bool:
    """Shut down this process's ends of the connections of *pids*; tell whether there were any."""
    ours = {theirs: mine for mine, theirs in _connections(path)}
    ends = {ours[name] for pid in pids for name in _open_files(pid) if name in ours}
    for descriptor, name in _descriptors() if ends else ():
        if name in ends:
            _shut(descriptor, name)
    return bool(ends)


def _shut(descriptor: int, name: str) -> None:
    with contextlib.suppress(OSError):
        kept = os.dup(descriptor)
        # Others close and open files meanwhile: the number may be another one's since it was looked at.
        if str(Path(f"/proc/self/fd/{kept}").readlink()) != name:
            os.close(kept)
            return
        with socket.socket(fileno=kept) as end:
            end.shutdown(socket.SHUT_RDWR)


def _descriptors() -> Iterator[tuple[int, str]]:
    for entry in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError):
            yield int(entry.name), str(entry.readlink())


def _open_files(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):  # it has ended, or is another user's
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                yield str(entry.readlink())


def _connections(path: Path) -> Iterator[tuple[str, str]]:
    """Yield both ends, the accepted and the other one, of the connections to the server at *path*."""
    name = os.fsencode(path)
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
                if about.get(_NAME, b"").rstrip(b"\0") == name and _PEER in about:
                    inodes = (*struct.unpack_from("=I", body, _INODE), *struct.unpack("=I", about[_PEER]))
                    yield f"socket:[{inodes[0]}]", f"socket:[{inodes[1]}]"


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
