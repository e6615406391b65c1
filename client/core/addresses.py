"""Addresses of daemons, as configuration names them: host:port, [IPv6]:port, or unix:PATH."""

from __future__ import annotations

import ipaddress
import re

from slurm_interleave.client.core.errors import ConfigError

PORT_MAX = 65_535
_HOST_PORT = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%\w]+\]|[^\s:/\[\]]+):(?P<port>\d{1,5})", re.ASCII)


def check_address(address: str, where: str, *, lowest: int = 1) -> None:
    """Raise `ConfigError`, naming the key *where*, unless *address* is one with a port from *lowest* on."""
    if address.startswith("unix:") and len(address) > len("unix:"):
        return
    found = _HOST_PORT.fullmatch(address)
    if found is None or not lowest <= int(found["port"]) <= PORT_MAX:
        raise ConfigError(
            f"{where} = {address!r} is no address; write host:port with a port from {lowest} to {PORT_MAX}, "
            "as in 127.0.0.1:50051 or [::1]:50051"
        )


def is_loopback(address: str) -> bool:
    """Tell whether *address* can be reached from this host alone."""
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
