"""HTTP to a server of this node, each call with a limit; it says whether a call may have arrived."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from slurm_interleave.node_agent.backends.protocol import in_thread
from slurm_interleave.node_agent.waits import Limit

_BODY_MAX = 4 << 20
_GRACE_S = 0.5


class EndpointFailed(Exception):
    """A server did not do what it was asked."""

    def __init__(self, text: str, *, reached: bool, again: bool = False, back: bool = False) -> None:
        """*reached*: it may have begun all the same; *again*: another try may end better.

        *back*: the server is on the devices again for certain, whatever else failed.
        """
        super().__init__(text)
        self.reached = reached
        self.back = back
        self.again = again


@dataclass(frozen=True)
class Reply:
    """What a server answered."""

    status: int
    body: str

    def json(self) -> Any:
        """Return the body as JSON; None if it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):  # that of brackets without end
            return None


async def call(
    method: str,
    url: str,
    path: str,
    timeout_s: float,
    query: Mapping[str, Any] | None = None,
    body: Mapping[str, Any] | None = None,
) -> Reply:
    """Return the answer of *url* to one call, whatever its status. Raises `EndpointFailed`."""
    what = f"{url}{path}"
    target = urlsplit(url).path.rstrip("/") + path + (f"?{urlencode(query, doseq=True)}" if query else "")
    timeout_s, parts, opened = max(0.01, timeout_s), urlsplit(url), list[socket.socket]()
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)
    try:
        work = in_thread(lambda: _call(connection, opened, method, target, body))
        return await Limit(timeout_s + _GRACE_S).over(work)
    except ConnectionRefusedError as error:
        raise EndpointFailed(f"{what}: nobody listens: {error}", reached=False, again=True) from None
    except (TimeoutError, asyncio.TimeoutError):
        raise EndpointFailed(f"{what}: no answer within {timeout_s:.3g} s", reached=True) from None
    except (OSError, http.client.HTTPException) as error:
        raise EndpointFailed(f"{what}: no answer: {error or repr(error)}", reached=True) from None
    finally:
        for each in opened:  # a server that answers in drops would keep its thread
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def _call(
    connection: http.client.HTTPConnection,
    opened: list[socket.socket],
    method: str,
    target: str,
    body: Mapping[str, Any] | None,
) -> Reply:
    try:
        connection.connect()
        opened.append(connection.sock)
        payload = None if body is None else json.dumps(body)
        connection.request(method, target, payload, {"Content-Type": "application/json"} if payload else {})
        answer = connection.getresponse()
        return Reply(answer.status, answer.read(_BODY_MAX).decode(errors="replace"))
    finally:
        connection.close()
