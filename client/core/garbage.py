"""How often a daemon looks for garbage in cycles, which stops all else it does for the time of a look."""

from __future__ import annotations

import gc


def look_seldom() -> None:
    """Take what there is now, a start's, for what stays; what comes later is seldom garbage in a cycle."""
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
    gc.enable()
