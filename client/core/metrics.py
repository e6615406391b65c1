"""What the metrics of both daemons share: the address, and the server that Prometheus asks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from slurm_interleave.client.core.addresses import check_address, is_loopback
from slurm_interleave.client.core.errors import ConfigError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

# Upper bounds in seconds: from a grant without a switch to an hour.
DURATIONS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600, 1200, 3600)
_LOOK_S = 5.0  # that the event loop has for a look


def check_metrics_address(address: str, section: str, *, open_to_all: bool) -> None:
    """Raise `ConfigError` unless [*section*] metrics = *address* is empty or may be served."""
    if not address:
        return
    where = f"[{section}] metrics"
    check_address(address, where, lowest=0)
    if address.startswith("unix:"):
        raise ConfigError(
            f"{where} = {address!r}: Prometheus asks by TCP; write host:port, as in 127.0.0.1:9102"
        )
    if not open_to_all and not is_loopback(address):
        raise ConfigError(
            f"{where} = {address!r}: anybody on the network could read the names of groups there; "
            f"set [{section}] metrics_open = true if that may be so, or listen on 127.0.0.1"
        )


class Metrics(Protocol):
    """What a daemon measures."""

    @property
    def registry(self) -> CollectorRegistry:
        """All of it, by name."""

    def look(self) -> None:
        """Bring up to date what no event tells; called in the daemon's event loop."""


@contextlib.asynccontextmanager
async def serving_metrics(address: str, section: str, make: Callable[[], Metrics]) -> AsyncIterator[int]:
    """Serve metrics at *address* as [*section*] says, if it says so; give the port, or 0.

    They are made only then, since that loads `prometheus_client`. Raises `ConfigError` if nobody can listen
    there.
    """
    if not address:
        yield 0
        return
    import prometheus_client

    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
    host, _, port = address.rpartition(":")
    fresh = _Fresh(make(), asyncio.get_running_loop())
    try:
        server, _ = prometheus_client.start_http_server(int(port), host.strip("[]"), fresh)
    except OSError as error:
        raise ConfigError(f"[{section}] metrics = {address!r} cannot be used: {error}") from None
    try:
        yield server.server_port
    finally:
        await asyncio.to_thread(server.shutdown)
        server.server_close()


class _Fresh:
    """A registry that looks before it tells: requests have threads, what is looked at belongs to the loop."""

    def __init__(self, metrics: Metrics, loop: asyncio.AbstractEventLoop) -> None:
        self._metrics = metrics
        self._loop = loop

    def collect(self) -> Iterable[Metric]:
        """Return all metrics as they are now."""
        asyncio.run_coroutine_threadsafe(self._look(), self._loop).result(_LOOK_S)
        return self._metrics.registry.collect()

    async def _look(self) -> None:
        self._metrics.look()
