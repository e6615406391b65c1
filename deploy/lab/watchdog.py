"""Ends and removes a lab when the process that started it is gone: `python -m lab.watchdog ROOT [FOLDER...]`.

It reads its standard input, a pipe that the lab holds open. The end of the pipe is the lab's end, whether it
was stopped or died. Then every process of the lab is killed and the folders are removed.
"""

from __future__ import annotations

import shutil
import signal
import sys
from pathlib import Path

from lab.processes import sweep


def main(argv: list[str]) -> int:
    """Wait for the end of standard input, then clean up; 1 if a process could not be ended."""
    root, *folders = (Path(arg) for arg in argv)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    left = sweep(root)
    for folder in (root, *folders):
        shutil.rmtree(folder, ignore_errors=True)
    if left:
        print(f"lab: processes of {root} that do not end: {left}", file=sys.stderr)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
