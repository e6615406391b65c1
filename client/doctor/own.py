"""What every host has: the configuration, MUNGE, and the way to the orchestrator."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from slurm_interleave.client.cli.link import Orchestrator, orchestrator
from slurm_interleave.client.connect import ClientConfig
from slurm_interleave.client.core import munge
from slurm_interleave.client.core.config import load_section, read_toml
from slurm_interleave.client.core.errors import ConfigError, InterleaveError
from slurm_interleave.client.core.near import nearest
from slurm_interleave.client.doctor.finding import Finding, Host, error, ok, warning

SECTIONS = (
    *("agent", "client", "cuda", "groups", "node_classes", "orchestrator", "pairing", "placement", "sim"),
    *("tracing", "turns", "web"),
)
# munged refuses what is older than five minutes; what our logs and reports say should be nearer than that.
_SKEW_MAX_S, _SKEW_S = 300.0, 5.0
_CALLS = 3


@dataclass(frozen=True)
class Answer:
    """What the orchestrator said."""

    address: str
    version: str  # empty: of a release that does not say it
    round_trip_s: float
    ahead_s: float  # its clock before ours; of no meaning without a version


def findings(host: Host) -> Iterator[Finding]:
    """Check them, one after the other."""
    try:
        config = load_section(ClientConfig, "client", host.config)
        unknown = sections(host.config)
    except ConfigError as bad:
        yield error("configuration", str(bad), "mend the file; all hosts have the same one")
        return
    yield unknown or ok("configuration", f"{host.config or 'no file: all values are the defaults'}")
    if config.auth == "munge":
        yield _munge(config.munge_socket)
    yield from _orchestrator(host, config)


def sections(path: Path | None) -> Finding | None:
    """Return which section of the file nobody reads. Raises `ConfigError`."""
    for name in read_toml(path) if path else {}:
        if name not in SECTIONS:
            near = nearest(name, SECTIONS)
            meant = f"did you mean [{near}]?" if near else f"known are {', '.join(SECTIONS)}"
            return error("configuration", f"{path}: nobody reads section [{name}]", meant)
    return None


def _munge(socket: str) -> Finding:
    payload = b"interleave doctor"
    try:
        who, returned = munge.decode(munge.encode(payload, socket), socket)
    except InterleaveError as bad:
        return error("munge", str(bad))
    if (who.uid, returned) != (os.getuid(), payload):
        return error("munge", f"a credential of uid {os.getuid()} came back as one of uid {who.uid}")
    return ok("munge", "makes and reads credentials")


def _orchestrator(host: Host, config: ClientConfig) -> Iterator[Finding]:
    try:
        with orchestrator(str(host.config) if host.config else None, None) as link:
            # The first one connects too.
            answers = [_ask(link, config.orchestrator) for _ in range(_CALLS)]
    except InterleaveError as bad:
        yield error("orchestrator", str(bad))
        return
    yield from judge(min(answers, key=lambda answer: answer.round_trip_s), version("slurm-interleave"))


def _ask(link: Orchestrator, address: str) -> Answer:
    at, began = time.time(), time.monotonic()
    reply = link.status()
    took = time.monotonic() - began
    return Answer(address, reply.version, took, reply.now - (at + took / 2))


def judge(answer: Answer, own: str) -> Iterator[Finding]:
    """Say of an orchestrator's answer what an installation of version *own* makes of it."""
    text = f"{answer.address} answers in {answer.round_trip_s * 1000:.1f} ms"
    if answer.version != own:
        runs = answer.version or "a release that does not say which"
        yield warning(
            "orchestrator", f"{text}; it runs {runs}, here is {own}", "install the same release everywhere"
        )
    else:
        yield ok("orchestrator", f"{text}, version {answer.version}")
    if not answer.version:  # nor what time it has
        return
    skew = abs(answer.ahead_s)
    where = "behind" if answer.ahead_s > 0 else "ahead of"
    said = f"this host is {skew:.1f} s {where} the orchestrator's"
    if skew > _SKEW_MAX_S:
        yield error("clock", said, "MUNGE refuses what is five minutes off: run NTP (chrony) on both hosts")
    elif skew > _SKEW_S:
        yield warning("clock", said, "run NTP (chrony) on both hosts")
    else:
        yield ok("clock", f"{skew:.3f} s off the orchestrator's")
