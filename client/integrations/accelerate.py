"""Accelerate, whose loop is the user's own: the devices are held before there is an Accelerator.

    with accelerate.session(mixed_precision="bf16") as (accelerator, turns):
        model, optimizer, batches = accelerator.prepare(...)
        for batch in batches:
            turns.boundary("step")  # at the same line in every rank, where no gradient is under way
            ...

Source: Accelerate 1.15.0 `state.py` (an Accelerator initialises device and process group),
`data_loader.py` (a batch is moved to the device before it is handed out).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from slurm_interleave.client.integrations.turns import Turns


@contextmanager
def session(phase: str = "load", **arguments: Any) -> Iterator[tuple[Any, Turns]]:
    """Acquire, make an Accelerator of *arguments*, and yield the devices with the end of the `with`."""
    from accelerate import Accelerator

    with Turns.from_env().session(phase) as turns:
        yield Accelerator(**arguments), turns
