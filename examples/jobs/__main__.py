"""`python -m jobs NAME`: runs an example on a private Slurm cluster and prints its report."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from jobs.run import EXAMPLES_BY_NAME, MEMBERS, SIM, run
from lab import Cluster, LabError


def main() -> int:
    """Run one example; 0 if its jobs ended well."""
    parser = argparse.ArgumentParser(prog="jobs", description=__doc__)
    parser.add_argument("name", choices=EXAMPLES_BY_NAME)
    example = EXAMPLES_BY_NAME[parser.parse_args().name]
    try:
        with Cluster.start(sim=SIM, members=MEMBERS) as cluster:
            run(cluster, example)
            program = Path(sys.executable).parent / "sinterleave"
            env = {**os.environ, "INTERLEAVE_CONFIG": str(cluster.config)}
            columns = "JobID,Group,Phase,Start,End,Waited,Held,Switches,State"
            subprocess.run([str(program), "-o", columns], env=env, check=False)
    except LabError as error:
        print(f"jobs: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
