"""Profiles that people have declared, in a file."""

from __future__ import annotations

from pathlib import Path

from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.orchestrator.json_file import read_json
from slurm_interleave.orchestrator.pairing.profile import Profile, by_name, parse


def declared(path: Path) -> dict[str, Profile]:
    """Return the profiles that are kept in *path*; none if it is not there. Raises `BadArgument`."""
    try:
        return by_name(parse(read_json(path)))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise BadArgument(f"{path} cannot be read: {error}") from error
