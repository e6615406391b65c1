"""The example's loop: `ray_driver OUT STEPS GO`.

With more than three steps it makes the file GO.waits after the third, and waits for the file GO.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from frameworks import ray_loop


def main(out: Path, steps: int, go: Path) -> None:
    def told(step: int) -> None:
        if step == 2 < steps - 1:
            go.with_suffix(".waits").touch()
            while not go.exists():
                time.sleep(0.05)

    ray_loop.main(out, steps, told)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
