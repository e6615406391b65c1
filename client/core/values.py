"""Numbers and texts from outside are looked at here, once: SQL can keep them, and sums do not overflow."""

from __future__ import annotations

import math
import re
from typing import Any

from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.client.core.names import excerpt

SIZE_MAX = 1 << 50  # bytes; 8,000 of it still fit into 63 bits
SECONDS_MAX = 1e9
UID_MAX = (1 << 32) - 2  # the next one means "nobody was named", see chown(2)
PID_MAX = (1 << 31) - 1
PRIORITY_MAX = (1 << 31) - 1
SLOWDOWN_MAX = 1000  # percent
LABEL_MAX = 128
REASON_MAX = 1000
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:+-]{0,127}")


def parse_word(text: str, what: str) -> str:
    """Return *text* as the name of a node, an attempt or an operation. Raises `BadArgument`."""
    if not _WORD.fullmatch(text):
        raise BadArgument(
            f"{what} {excerpt(text)} is not allowed; allowed are 1 to 128 letters, digits, dots, colons, "
            "underscores, plus signs and dashes, beginning with a letter, a digit or an underscore"
        )
    return text


def parse_label(text: str) -> str:
    """Return *text*, such as an account's name, printable and cut to 128 characters."""
    return _printable(text[:LABEL_MAX])


def parse_reason(text: str) -> str:
    """Return *text*, why something failed, printable and cut to 1,000 characters."""
    return _printable(text[:REASON_MAX])


def parse_size(value: int, what: str) -> int:
    """Return *value* as a number of bytes. Raises `BadArgument`."""
    if not 0 <= value <= SIZE_MAX:
        raise BadArgument(f"{what} = {value}: must be 0 to {SIZE_MAX} bytes")
    return value


def parse_seconds(value: float, what: str) -> float:
    """Return *value* as a duration. Raises `BadArgument`."""
    if not (math.isfinite(value) and 0 <= value <= SECONDS_MAX):
        raise BadArgument(f"{what} = {value}: must be 0 to {SECONDS_MAX:.0f} seconds")
    return value


def parse_moment(value: float, what: str) -> float:
    """Return *value* as a time. Raises `BadArgument`."""
    if not math.isfinite(value):
        raise BadArgument(f"{what} = {value}: must be seconds since the Unix epoch")
    return value


def parse_number(raw: Any, what: str, maximum: int, minimum: int = 0) -> int:
    """Return *raw* as a whole number from *minimum* to *maximum*. Raises `BadArgument`."""
    try:
        number = int(raw)
    except (TypeError, ValueError, OverflowError):
        raise BadArgument(f"{what}: {excerpt(raw)} is not a whole number") from None
    if not minimum <= number <= maximum:
        raise BadArgument(f"{what}: {excerpt(raw)} is not a number from {minimum} to {maximum}")
    return number


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " for c in text)
