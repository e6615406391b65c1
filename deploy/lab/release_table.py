"""Makes the table of what Slurm's releases do differently from what the tests noted on each of them.

Usage: python release_table.py FOLDER README [--check]. FOLDER holds one file a Debian release, written
by test-release.sh; the table stands in README between two marks. With --check nothing is written.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

# Debian's releases and the Slurm that each carries.
SLURM = {"bookworm": "22.05", "trixie": "24.11", "forky": "26.05"}
BEGIN, END = "<!-- made by `make test-matrix` -->", "<!-- end -->"


def pieces(path: Path) -> dict[str, str]:
    """Return what the tests of *path* noted: the outcome by piece."""
    return dict(json.loads(line) for line in path.read_text().splitlines())


def table(found: dict[str, dict[str, str]]) -> str:
    """Return *found*, outcomes by piece by release, as Markdown."""
    releases = [name for name in SLURM if name in found]
    rows = [["", *(SLURM[name] for name in releases)], ["---"] * (len(releases) + 1)]
    every = sorted({piece for outcomes in found.values() for piece in outcomes})
    rows += [[piece, *(found[name].get(piece, "not run") for name in releases)] for piece in every]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main(folder: Path, readme: Path, check: bool) -> int:
    """Put the table into *readme*, or tell with *check* whether it is there. Return the exit code."""
    missing = [name for name in SLURM if not (folder / f"{name}.jsonl").exists()]
    if missing:
        print(f"{folder}: no results of {', '.join(missing)}; run: make test-matrix", file=sys.stderr)
        return 1
    new = table({name: pieces(folder / f"{name}.jsonl") for name in SLURM})
    text = readme.read_text()
    before, _, rest = text.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        print(f"{readme}: holds no lines {BEGIN} and {END}", file=sys.stderr)
        return 1
    made = f"{before}{BEGIN}\n\n{new}\n\n{END}{after}"
    print(new)
    if made == text:
        return 0
    if check:
        print(f"{readme}: its table is another; run make test-matrix and commit it", file=sys.stderr)
        return 1
    readme.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), "--check" in sys.argv[3:]))
