"""Files that users write."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NoReturn

from slurm_interleave.client.core.errors import BadArgument


def read_json(path: Path) -> Any:
    """Return what *path* holds. Raises `BadArgument` if that is no JSON, and `OSError`."""
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:  # that of brackets without end
        raise BadArgument(f"{path} is no JSON: {error}") from error


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _refuse(text: str) -> NoReturn:
    """Of what Python takes and JSON does not have: no comparison with such a number means anything."""
    raise ValueError(f"{text} is not a number that can be counted with")
