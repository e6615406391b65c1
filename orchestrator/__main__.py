"""`interleaved` as a program, so that something can be done before all of it is imported."""

from __future__ import annotations

import gc


def main() -> None:
    """Run `interleaved`. What a start loads stays, so garbage is looked for only after that."""
    gc.disable()
    from slurm_interleave.orchestrator import daemon

    daemon.main()


if __name__ == "__main__":
    main()
