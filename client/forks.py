"""What becomes of this process's objects in a child that it forks."""

from __future__ import annotations

import os
import weakref
from typing import Any, Protocol


class Forked(Protocol):
    """Told in the child."""

    def forked(self) -> object:
        """Begin anew; return what is the parent's."""


_all: weakref.WeakSet[Any] = weakref.WeakSet()
_of_parents: list[object] = []  # kept, since their ends would do something to the parent's connections


def tell_in_children(each: Forked) -> None:
    """Have *each* told in each child, for as long as it lives."""
    _all.add(each)


def _in_child() -> None:
    _of_parents.extend(each.forked() for each in list(_all))


os.register_at_fork(after_in_child=_in_child)
