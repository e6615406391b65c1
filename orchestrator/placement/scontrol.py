"""Many changes by one start of scontrol: without arguments it reads them from its input, one a line.

It goes on after one that failed, and exits with 1 then (tried on 22.05, 24.11 and 26.05). Which one it was
is found by halves, not in its words: each change can be made twice.
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
    failed = await _together(run, lines)

    async def alone(one: Change) -> None:
        failed.update(await _together(run, [one]))

    await side_by_side((alone(one) for one in changes if one not in lines), _STARTS_AT_ONCE)
    return failed


async def _together(run: Run, changes: Sequence[Change]) -> dict[str, SlurmFailed]:
    if not changes:
        return {}
    try:
        if len(changes) == 1:
            await run(("scontrol", *changes[0][1]), "")
        else:
            lines = [" ".join(argv) for _, argv in changes]
            await run(("scontrol",), "\n".join([*lines, "exit", ""]))
    except SlurmFailed as error:
        if len(changes) == 1 or isinstance(error, SlurmLate):
            return {name: error for name, _ in changes}
        half = len(changes) // 2
        return await _together(run, changes[:half]) | await _together(run, changes[half:])
    return {}


def _is_line(argv: Sequence[str]) -> bool:
    return all(map(_PLAIN.fullmatch, argv)) and sum(map(len, argv)) + len(argv) < _LONGEST
