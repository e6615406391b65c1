"""Words that are mistyped: the nearest one that there is."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the one of *known* that may have been meant by *word*; empty where none is near."""
    names = {name.lower(): name for name in known}
    return next((names[near] for near in difflib.get_close_matches(word.lower(), names, n=1)), "")


def hint(word: str, known: Iterable[str]) -> str:
    """Return the question whether the nearest of *known* was meant; nothing where none is near."""
    near = nearest(word, known)
    return f"; did you mean {near!r}?" if near else ""
