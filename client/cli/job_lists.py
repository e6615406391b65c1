"""Jobs as users write them: `123-130`, tasks of arrays `123_4` and `123_[1-3]`, components `123+0`.

The records have the number that each task and component has of its own (sacct's JobIDRaw); Slurm
is asked for it.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence

from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.client.core.hostlist import expand
from slurm_interleave.client.core.names import excerpt, parse_job_id

_TASK = re.compile(r"\d+(_(\d+|\[[\d,-]+\])|\+\d+)")
_FROM_TO = re.compile(r"\d{1,10}-\d{1,10}")
_SPLIT = re.compile(r"(?:[^,\[]|\[[^\]]*(?:\]|$))+")
_RANGES = re.compile(r"\[\d+(-\d+)?(,\d+(-\d+)?)*\]")
_MOST = 1000
_SLURM_S = 20


def split(text: str) -> Iterator[str]:
    """Yield the words of a list; a comma within brackets ends none."""
    yield from (word.strip() for word in _SPLIT.findall(text) if word.strip())


def names(text: str, what: str) -> tuple[str, ...]:
    """Return the names that *text* stands for, as in `n[1-3,7]`. Raises `BadArgument`."""
    outside = _RANGES.sub("", text)
    if "[" in outside or "]" in outside:
        raise BadArgument(f"{what} {excerpt(text)} cannot be read; write them as in n1,n[2-4,7]")
    if _count(text) > _MOST:
        raise _too_many(text, what)
    return expand(text)


def _count(text: str) -> int:
    """Return how many names *text* makes at most."""
    count = 1
    for found in _RANGES.finditer(text):
        pairs = [item.partition("-") for item in found[0][1:-1].split(",")]
        count *= sum(max(int(last or first) - int(first) + 1, 0) for first, _, last in pairs)
    return count


def parse_jobs(words: Sequence[str]) -> tuple[str, ...]:
    """Return the job ids that *words* stand for. Raises `BadName`, `BadArgument`."""
    jobs, tasks = list[str](), list[str]()
    for word in (part for text in words for part in split(text)):
        if _TASK.fullmatch(word):
            tasks += names(word, "jobs")
        elif _FROM_TO.fullmatch(word):
            jobs += _from_to(word)
        else:
            jobs.append(parse_job_id(word))
    return tuple(dict.fromkeys((*jobs, *(_numbers(tasks) if tasks else ()))))


def _from_to(word: str) -> Iterator[str]:
    first, last = map(int, word.split("-"))
    if last < first:
        raise BadArgument(f"jobs {excerpt(word)} end before they begin; write the lower number first")
    if last - first >= _MOST:
        raise _too_many(word, "jobs")
    return map(str, range(first, last + 1))


def _too_many(text: str, what: str) -> BadArgument:
    return BadArgument(f"{what} {excerpt(text)} are too many; at most {_MOST} can be named")


def _numbers(tasks: Sequence[str]) -> list[str]:
    """Return the numbers of tasks and components: of slurmctld for those it knows, else of the accounting."""
    found = {**_asked(_SACCT, tasks), **_asked(_SQUEUE, tasks)}
    missing = [task for task in tasks if task not in found]
    if missing:
        raise BadArgument(
            f"neither squeue nor sacct can say which job {', '.join(missing[:8])} is; "
            "name it by its own number, JobIDRaw of sacct or SLURM_JOB_ID in the job"
        )
    return [found[task] for task in tasks]


_SACCT = ("sacct", "-X", "-n", "-P", "-S", "1970-01-01", "-o", "JobID,JobIDRaw", "-j")
_SQUEUE = ("squeue", "-h", "-r", "-t", "all", "-O", "JobArrayID:|,JobID:|,HetJobOffset:|,HetJobID:|", "-j")


def _asked(argv: Sequence[str], tasks: Sequence[str]) -> dict[str, str]:
    try:
        done = subprocess.run(
            [*argv, ",".join(tasks)], capture_output=True, text=True, timeout=_SLURM_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    found = dict[str, str]()
    for line in done.stdout.splitlines():
        name, number, *het = [part.strip() for part in f"{line}|".split("|")]
        found[name] = number
        if len(het) > 1 and het[0].isdecimal() and het[1].isdecimal():
            found[f"{het[1]}+{het[0]}"] = number
    return found
