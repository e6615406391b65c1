"""Section [web] of interleave.toml. Each field is the documentation of one key."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from slurm_interleave.client.core.addresses import check_address, is_loopback
from slurm_interleave.client.core.errors import ConfigError


@dataclass(frozen=True)
class WebConfig:
    """The page of `interleaved`."""

    # host:port of this host's loopback; empty: there is no page.
    listen: str = ""
    # What users' browsers reach it at, where a proxy with TLS stands before it: https://head.example.org/interleave
    url: str = ""
    # How long a link from `interleave web` is good for.
    hours: int = 12

    def __post_init__(self) -> None:
        """Refuse what would let a network read along."""
        if self.listen:
            check_address(self.listen, "[web] listen", lowest=0)
        if self.listen.startswith("unix:") or (self.listen and not is_loopback(self.listen)):
            raise ConfigError(
                f"[web] listen = {self.listen!r}: the page is served without TLS, so on this host's loopback "
                "alone, as 127.0.0.1:9104; for others put a proxy with TLS before it and set [web] url"
            )
        parts = urlsplit(self.url)
        if self.url and (parts.scheme not in ("http", "https") or not parts.netloc or parts.query):
            raise ConfigError(
                f"[web] url = {self.url!r} is no address of a page, as https://head.example.org/il"
            )
        if not 1 <= self.hours <= 24 * 7:
            raise ConfigError(f"[web] hours = {self.hours}: must be 1 to {24 * 7}")
