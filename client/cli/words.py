"""Options that take one of some words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from slurm_interleave.client.core.near import hint


class OneOf(click.Choice[str]):
    """One of some words, in capital or small letters; of one that is mistyped the nearest is offered."""

    def __init__(self, words: Iterable[str]) -> None:
        super().__init__(list(words))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word, or end with the nearest one and all others."""
        words, given = {word.lower(): word for word in self.choices}, str(value)
        if given.lower() not in words:
            known = ", ".join(self.choices)
            self.fail(f"{given!r}{hint(given, self.choices)}; known are {known}", param, ctx)
        return words[given.lower()]
