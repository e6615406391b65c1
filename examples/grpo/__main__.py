"""`python -m grpo`: the job, on one BLAS thread, whose sums have one order only."""

import os
import sys

for library in ("OPENBLAS", "OMP", "MKL", "BLIS"):
    os.environ[f"{library}_NUM_THREADS"] = "1"


def main() -> int:
    """Import NumPy only now: it reads the number of threads when it is loaded."""
    from grpo.command import main as command

    return command()


if __name__ == "__main__":
    sys.exit(main())
