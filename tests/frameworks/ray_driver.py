"""The example's loop, which waits after its third step for file GO: `ray_driver OUT STEPS GO`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from frameworks import ray_loop


def main(out: Path, steps: int, go: Path) -> None:
    def told(step: int) -> None:
        while step == 2 < steps - 1 and not go.exists():
            time.sleep(0.05)

    ray_loop.main(out, steps, told)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
