"""A private munged with a key of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

# Python itself may lie where only root can read, so the user changes once all is loaded.
_ENCODE = """
import os, sys
from slurm_interleave.client.core import munge
munge._library()
os.setuid(int(sys.argv[2]))
print(munge.encode(b"interleave", sys.argv[1]))
"""


@contextlib.contextmanager
def munged() -> Iterator[str]:
    """Run munged; give its socket, which every user of this host may reach."""
    folder = Path(tempfile.mkdtemp(prefix="interleave-munge-"))
    folder.chmod(0o711)
    key = folder / "key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    names = {"socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    options = [f"--{option}={folder / name}" for option, name in names.items()]
    argv = ["/usr/sbin/munged", "--foreground", "--force", f"--key-file={key}", *options]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        limit = time.monotonic() + 10
        while not (folder / "socket").exists():
            assert process.poll() is None, "munged has ended"
            assert time.monotonic() < limit, "munged does not serve"
            time.sleep(0.01)
        yield str(folder / "socket")
    finally:
        process.terminate()
        process.wait(10)
        shutil.rmtree(folder)


def credential_of(uid: int, socket: str) -> str:
    """Return a credential that the user *uid* has made."""
    argv = [sys.executable, "-c", _ENCODE, socket, str(uid)]
    done = subprocess.run(argv, check=True, capture_output=True, timeout=20)
    return done.stdout.decode().strip()
