"""Files that users write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from slurm_interleave.client.core.errors import BadArgument


def read_json(path: Path) -> Any:
    """Return what *path* holds. Raises `BadArgument` if that is no JSON, and `OSError`."""
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise BadArgument(f"{path} is no JSON: {error}") from error
