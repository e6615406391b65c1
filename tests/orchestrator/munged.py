"""A private munged with a key of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

# Python itself may lie where only root can read, so the user changes once all is loaded.
_ENCODE = """
import os, sys
from slurm_interleave.client.core import munge
munge._library()
os.setuid(int(sys.argv[2]))
print(munge.encode(bytes.fromhex(sys.argv[3]), sys.argv[1]))
"""


# munged asks the time by time(2) alone.
_SKEW = """
#include <stdlib.h>
#include <time.h>
time_t time(time_t *there)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    now.tv_sec += atol(getenv("SKEW_S"));
    if (there)
        *there = now.tv_sec;
    return now.tv_sec;
}
"""


def skewed(folder: Path, seconds: int) -> dict[str, str]:
    """Return the variables that make the clock of a program wrong by *seconds*."""
    source, library = folder / "skew.c", folder / "skew.so"
    source.write_text(_SKEW)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return {"LD_PRELOAD": str(library), "SKEW_S": str(seconds)}


@contextlib.contextmanager
def munged(secret: bytes = b"", env: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run munged with the key *secret*; give its socket, which every user of this host may reach."""
    folder = Path(tempfile.mkdtemp(prefix="interleave-munge-"))
    folder.chmod(0o711)
    key = folder / "key"
    key.write_bytes(secret or os.urandom(128))
    key.chmod(0o400)
    names = {"socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    options = [f"--{option}={folder / name}" for option, name in names.items()]
    argv = ["/usr/sbin/munged", "--foreground", "--force", f"--key-file={key}", *options]
    null, environ = subprocess.DEVNULL, {**os.environ, **(env or {})}
    process = subprocess.Popen(argv, stdout=null, stderr=null, env=environ)
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


def credential_of(uid: int, socket: str, payload: bytes) -> str:
    """Return a credential that the user *uid* has made."""
    argv = [sys.executable, "-c", _ENCODE, socket, str(uid), payload.hex()]
    done = subprocess.run(argv, check=True, capture_output=True, timeout=60)
    return done.stdout.decode().strip()
