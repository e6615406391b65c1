"""Unix sockets that take one JSON line and answer with one: for prolog and epilog, and for users."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import stat
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_interleave.client.core.errors import ConfigError, InterleaveError

log = logging.getLogger(__name__)
LINE_MAX = 65_536
PER_USER = 64  # connections of one user at a time: he must not use up the files that the daemon may open
_READ_S = 5.0


@dataclass(frozen=True)
class Peer:
    """Who has opened a connection, by the kernel's word (SO_PEERCRED, see unix(7))."""

    pid: int  # as this process sees it; 0 where it cannot
    uid: int
    gid: int


Verb = Callable[[dict[str, Any], Peer], Awaitable[Mapping[str, Any]]]


class HookServer:
    """Answers each verb by its function: `{"ok": true, ...}` or `{"ok": false, "error": text}`.

    Only root, the daemon's own user and *users* may talk here, unless it is open *to_all*. Where others can
    open connections, each user has `PER_USER` of them at most, and root as many as he likes.
    """

    def __init__(
        self, path: Path, verbs: Mapping[str, Verb], *, to_all: bool = False, users: Set[int] = frozenset()
    ) -> None:
        self._path = path
        self._verbs = verbs
        self._to_all, self._users = to_all, users | {0, os.getuid()}
        self._open = to_all or not users <= {0, os.getuid()}
        self._connections: Counter[int] = Counter()  # by user
        self._server: asyncio.Server | None = None
        self._inode = 0

    async def __aenter__(self) -> HookServer:
        """Listen. Raises `ConfigError` if the socket cannot be made."""
        try:
            if not self._path.parent.exists():
                # Sockets of jobs may lie in it too, whatever the umask says.
                self._path.parent.mkdir(parents=True)
                self._path.parent.chmod(0o755)
            _make_way(self._path)
            self._server = await asyncio.start_unix_server(self._serve, self._path, limit=LINE_MAX)
            self._path.chmod(0o666 if self._open else 0o600)
            self._inode = self._path.stat().st_ino
        except OSError as error:
            raise ConfigError(f"socket {self._path} cannot be made: {error}") from error
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop listening and remove the socket."""
        if self._server is not None:
            self._server.close()
        # A later process may have made its own by now.
        with contextlib.suppress(FileNotFoundError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = _peer(writer.get_extra_info("socket"))
        self._connections[peer.uid] += 1
        try:
            with contextlib.suppress(ConnectionError):
                reply = self._too_many(peer) or await self._reply(reader, peer)
                writer.write(json.dumps(reply).encode() + b"\n")
                await writer.drain()
        finally:
            writer.close()
            self._connections[peer.uid] -= 1
            self._connections += Counter()  # those without any go

    def _too_many(self, peer: Peer) -> dict[str, Any]:
        """Return what a user is told who has too many connections open; nothing for others."""
        if not self._open or peer.uid == 0 or self._connections[peer.uid] <= PER_USER:
            return {}
        text = f"uid {peer.uid} has {PER_USER} connections open here, which is all that a user may have"
        return {"ok": False, "error": f"{text}; try again when one of them is answered"}

    async def _reply(self, reader: asyncio.StreamReader, peer: Peer) -> dict[str, Any]:
        try:
            # Read first: a peer that is refused before it has spoken gets a broken pipe for an answer.
            line = await asyncio.wait_for(reader.readline(), _READ_S)
        except (ValueError, asyncio.TimeoutError):
            line = b""
        if not self._to_all and peer.uid not in self._users:
            return {"ok": False, "error": f"uid {peer.uid} may not talk here, only root may"}
        try:
            request = json.loads(line)
            verb = self._verbs[request["verb"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            known = ", ".join(sorted(self._verbs))
            return {"ok": False, "error": f"one JSON object a line is needed, with a verb out of: {known}"}
        try:
            return {"ok": True, **await verb(request, peer)}
        except InterleaveError as error:
            log.warning("hook.refused", extra={"verb": request["verb"], "reason": str(error)})
            return {"ok": False, "error": str(error)}


def _make_way(path: Path) -> None:
    """Remove the socket that an earlier process has left. Raises `OSError` for what is none: it stays."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(f"{path} is there and no socket; name another path")
        path.unlink()


def _peer(connection: socket.socket) -> Peer:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    # The ids are unsigned: "nobody" of some systems is 4294967294.
    return Peer(*struct.unpack("iII", credentials))
