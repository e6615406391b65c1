"""What the rules of job_submit cost slurmctld, in plain Lua: see README.md."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
RULES = HERE.parent / "slurm_plugin"
LIMIT_US = 200.0
INTERPRETERS = ("lua5.1", "lua5.3", "lua5.4", "lua")
KINDS = {
    "accepted": "an interleaved job with all options",
    "refused": "one that is refused",
    "stranger": "a job that did not ask",
    "modified": "a change of an interleaved job",
}


def main() -> None:
    """Print the figures; exit 1 where a kind of job costs more than the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the table")
    args = parser.parse_args()
    found = [name for name in INTERPRETERS if shutil.which(name)]
    if not found:
        sys.exit("job_submit.py: no Lua here; install the Debian package lua5.3")
    figures = measure(found[0])
    if args.json:
        print(json.dumps(figures))
    else:
        for kind, text in KINDS.items():
            print(f"{figures[kind]:8.2f} us  {text}")
    sys.exit(any(value > LIMIT_US for value in figures.values()))


def measure(lua: str) -> dict[str, float]:
    """Return the median time of each kind in microseconds, less what the benchmark itself costs."""
    argv = [lua, str(HERE / "job_submit.lua"), str(RULES)]
    lines = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    taken = {name: float(value) for name, value in map(str.split, lines)}
    return {kind: taken[kind] - taken["nothing"] for kind in KINDS}


if __name__ == "__main__":
    main()
