"""Many changes by one start of scontrol: without arguments it reads them from its input, one a line.

It goes on after one that failed, and exits with 1 then (tried on 22.05, 24.11 and 26.05). Which ones failed
is found by one start for each, not in its words: each change can be made twice.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence

from slurm_interleave.client.core.errors import SlurmFailed
from slurm_interleave.client.core.slurm_command import SlurmLate
from slurm_interleave.orchestrator.placement.side_by_side import side_by_side

Change = tuple[str, tuple[str, ...]]  # the name of a job, and arguments of scontrol
Run = Callable[[Sequence[str], str], Awaitable[str]]  # a command and its input
# What neither readline nor scontrol takes for more than itself, and the buffer of one without readline holds.
_PLAIN, _LONGEST = re.compile(r"[A-Za-z0-9_.,:;=+\[\]-]+"), 2000
_STARTS_AT_ONCE = 8


async def change(run: Run, changes: Sequence[Change]) -> dict[str, SlurmFailed]:
    """Make *changes* in their order, those that are no plain lines last; return, by name, why some failed."""
    lines = [one for one in changes if _is_line(one[1])]
    alone = [one for one in changes if one not in lines]
    failed: dict[str, SlurmFailed] = {}
    if len(lines) < 2:
        alone = [*lines, *alone]
    else:
        text = "\n".join([*(" ".join(argv) for _, argv in lines), "exit", ""])
        try:
            await run(("scontrol",), text)
        except SlurmLate as error:
            failed = {name: error for name, _ in lines}
        except SlurmFailed:
            alone = [*lines, *alone]

    async def by_itself(name: str, argv: tuple[str, ...]) -> None:
        try:
            await run(("scontrol", *argv), "")
        except SlurmFailed as error:
            failed[name] = error

    await side_by_side((by_itself(*one) for one in alone), _STARTS_AT_ONCE)
    return failed


def _is_line(argv: Sequence[str]) -> bool:
    return all(map(_PLAIN.fullmatch, argv)) and sum(map(len, argv)) + len(argv) < _LONGEST
