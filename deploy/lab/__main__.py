"""A shell, or one command, in a private Slurm cluster of its own: `make lab` runs it."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from lab.cluster import Cluster
from lab.processes import LabError

_HINT = """\
A private Slurm with two nodes of two simulated GPUs each; it ends with this shell. For example:
  sbatch --interleave-group=rl --gres=gpu:1 --wrap='interleave run sleep 5'     # twice
  squeue; interleave status; sinterleave; interleave doctor"""


def main() -> int:
    """Return the exit status of the command; 1 if there is no cluster, with the reason on stderr."""
    parser = argparse.ArgumentParser(prog="lab", description=__doc__)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="in place of $SHELL")
    command = parser.parse_args().command
    try:
        with Cluster.start() as cluster:
            if not command:
                print(_HINT, flush=True)
            programs = f"{Path(sys.executable).parent}:{cluster.env['PATH']}"
            shell = command or [os.environ.get("SHELL", "/bin/sh")]
            done = subprocess.run(shell, env={**os.environ, **cluster.env, "PATH": programs}, check=False)
            return done.returncode if command else 0  # a shell ends with whatever its last command did
    except (LabError, OSError) as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
