"""Channels to the orchestrator, who the caller is, and what a gRPC error means."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import grpc

from slurm_interleave.client.core import munge
from slurm_interleave.client.core.errors import ConfigError, InterleaveError, by_name

TOKEN_KEY = "interleave-token"
MUNGE_KEY = "interleave-munge"
ERROR_KEY = "interleave-error"
# A peer that is gone without a word is noticed within 15 s.
CHANNEL_OPTIONS = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.enable_http_proxy", 0),
)
Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ClientConfig:
    """Section [client]. Each field is the documentation of one key."""

    # Where the orchestrator listens: host:port, or unix:PATH.
    orchestrator: str = "127.0.0.1:50051"
    # How a caller outside a job proves who he is: "munge", or "none" where the orchestrator asks for nothing.
    auth: str = "munge"
    # Socket of munged; empty: munged's own default.
    munge_socket: str = ""
    # Socket of this node's agent, at which jobs register where there is no Slurm.
    agent_socket: Path = Path("/run/interleave/register.sock")


def credentials(auth: str, munge_socket: str = "", token: str = "") -> Metadata:
    """Return the metadata that proves who the caller is: new for each call, since MUNGE refuses replays.

    Raises `ConfigError` for an unknown *auth*, `NotAuthenticated` if MUNGE does not answer.
    """
    if token:
        return ((TOKEN_KEY, token),)
    if auth == "munge":
        return ((MUNGE_KEY, munge.encode(b"interleave", munge_socket)),)
    if auth == "none":
        return ()
    raise ConfigError(f"auth = {auth!r} is not known; known are 'munge' and 'none'")


def open_channel(address: str) -> grpc.Channel:
    """Return a channel to *address* that notices a dead peer; it connects at the first call."""
    return grpc.insecure_channel(address, options=CHANNEL_OPTIONS)


def open_aio_channel(address: str) -> grpc.aio.Channel:
    """Return the same for asyncio."""
    return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)


class Unreachable(InterleaveError):
    """The orchestrator does not answer."""

    status = "UNAVAILABLE"


def domain_error(error: grpc.RpcError, address: str) -> InterleaveError:
    """Return what *error* means: the class that the server raised, or one that names the address."""
    trailing = cast("Iterable[tuple[str, str]]", error.trailing_metadata() or ())
    for key, value in trailing:
        if key == ERROR_KEY:
            return by_name(value)(error.details())
    # A server that stops answers CANCELLED to what is under way; no caller of this function cancels.
    if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        return Unreachable(f"the orchestrator at {address} cannot be reached: {error.details()}")
    return InterleaveError(f"the orchestrator at {address} answered {error.code().name}: {error.details()}")
