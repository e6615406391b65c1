"""Words that are mistyped: the nearest one that there is."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

import click


def hint(word: str, known: Iterable[str]) -> str:
    """Return the question whether the nearest of *known* was meant; nothing where none is near."""
    names = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), names, n=1)
    return f"; did you mean {names[near[0]]!r}?" if near else ""


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
