"""The folders of one lab and the watchdog that removes them, and ends every process, when the lab is over."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType

from lab.processes import MARKER, LabError

REPOSITORY = Path(__file__).resolve().parents[2]
_SHM = Path("/dev") / "shm"
# A unix socket's path holds 107 bytes; the longest that is made here is <root>/run/<node>/jobs/<job>/socket.
_ROOT_MAX = 60
_FOLDERS = ("dev", "etc", "log", "munge", "out", "run", "spool", "state")


class Scratch:
    """A folder `root` on disk and one, `sim`, in memory; both are gone when the context ends, however."""

    def __init__(self, root: Path | None = None) -> None:
        if root is not None:
            _check(root.absolute())
        self.root = root.absolute() if root else Path(tempfile.mkdtemp(prefix="ilv-"))
        self.sim = Path(tempfile.mkdtemp(prefix="interleave-lab-", dir=_SHM if _SHM.is_dir() else None))
        self._watchdog: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Scratch:
        self.root.mkdir(parents=True, exist_ok=True)
        self._watchdog = subprocess.Popen(
            [sys.executable, "-m", "lab.watchdog", str(self.root), str(self.sim)],
            stdin=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY / "deploy")},
            cwd="/",
            start_new_session=True,
        )
        for name in _FOLDERS:
            (self.root / name).mkdir()
        for folder in (
            self.root,
            self.sim,
        ):  # jobs of other users reach their sockets and devices through here
            folder.chmod(0o755)
        (self.root / "out").chmod(0o1777)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watchdog is None or self._watchdog.stdin is None:
            return
        self._watchdog.stdin.close()
        code = self._watchdog.wait()
        if code and kind is None:
            raise LabError(f"{self.root}: not every process of the lab could be ended (exit code {code})")

    def environment(self) -> dict[str, str]:
        """Return the caller's environment without Slurm's and our variables, with the lab's mark."""
        kept = {
            key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "INTERLEAVE_"))
        }
        config = str(self.root / "etc" / "interleave.toml")
        return {**kept, MARKER: str(self.root), "INTERLEAVE_CONFIG": config}


def program(name: str) -> str:
    """Return the path of our program *name*, beside the running Python. Raises `LabError`."""
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise LabError(f"{path}: not installed; run: make .venv/.ready")
    return str(path)


def _check(root: Path) -> None:
    if root.exists() and any(root.iterdir()):
        raise LabError(f"{root}: not empty; the lab removes its folder at the end, so choose a new one")
    if len(str(root)) > _ROOT_MAX:
        raise LabError(
            f"{root}: too long for the sockets below it; choose a folder of at most {_ROOT_MAX} characters"
        )
