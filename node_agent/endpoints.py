"""Which servers hold a job's device state, as the job says."""

from __future__ import annotations

import functools
import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from slurm_interleave.client.core.errors import BadArgument

APPS = ("vllm", "sglang")
_MOST = 256
_FIRST_PORT = 1024


@dataclass(frozen=True)
class Endpoints:
    """Servers of one kind. *discard*: they suspend without keeping the weights."""

    app: str
    urls: tuple[str, ...]
    discard: bool = False


def parse(app: str, urls: Sequence[str], *, discard: bool = False) -> Endpoints:
    """Return what a job says of its servers. Raises `BadArgument`.

    They are on this node, since the agent calls them and is root here: it must not be sent elsewhere.
    """
    if app not in APPS:
        raise BadArgument(f"application {app!r} is not known; known are {', '.join(APPS)}")
    if not urls or len(urls) > _MOST:
        raise BadArgument(f"{len(urls)} endpoints of {app}: name at least one, and at most {_MOST}")
    return Endpoints(app, tuple(dict.fromkeys(map(_url, urls))), discard)


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise BadArgument(f"endpoint {text!r}: {error}") from None
    if parts.scheme != "http" or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise BadArgument(f"endpoint {text!r}: a plain URL is needed, as http://localhost:8000")
    if port is None or port < _FIRST_PORT:
        raise BadArgument(
            f"endpoint {text!r}: a port from {_FIRST_PORT} on is needed, as http://localhost:8000"
        )
    if not (text.isascii() and text.isprintable()) or " " in text:
        raise BadArgument(f"endpoint {text!r}: there is a blank in it, or a letter that must be %-encoded")
    if not _is_here(parts.hostname):
        raise BadArgument(f"endpoint {text!r} is not on this node; name it as localhost or 127.0.0.1")
    return text.rstrip("/")


@functools.cache
def own_names() -> frozenset[str]:
    """Return the names of this node. The first call may ask DNS, and then for long."""
    return frozenset({"localhost", socket.gethostname(), socket.getfqdn()})


def _is_here(host: str) -> bool:
    """Tell whether *host* is this node: by name, or by an address that one can listen on."""
    if host in own_names():
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if address.is_loopback:
        return True
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return not (address.is_unspecified or address.is_multicast)
