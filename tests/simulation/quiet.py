"""A process while it simulates."""

from __future__ import annotations

import gc
import logging
import random
from typing import Any


class quiet:  # noqa: N801 - a context manager
    """No log, no collection of garbage at its own moments, and dice for who draws from the global ones."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._state: Any = None

    def __enter__(self) -> None:
        self._disabled = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        self._state = random.getstate()
        random.seed(self._seed)
        gc.collect()
        gc.disable()

    def __exit__(self, *error: object) -> None:
        gc.enable()
        random.setstate(self._state)
        logging.disable(self._disabled)
