"""A system's clock of one process that steps when a test says so."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

# What asks for the time of day, and that alone; a process sees the step that the file has at that moment.
_SOURCE = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static double step(void)
{
    static volatile double *there;
    if (!there) {
        const char *path = getenv("STEPPED_CLOCK");
        int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        void *seen = mmap(0, sizeof(double), PROT_READ, MAP_SHARED, file, 0);
        if (file >= 0)
            close(file);
        if (seen == MAP_FAILED)
            return 0;
        there = seen;
    }
    return *there;
}
int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += (time_t)step();
    return failed;
}
time_t time(time_t *there)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (there)
        *there = now.tv_sec;
    return now.tv_sec;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}
"""


class SteppedClock:
    """A library that a process is started with, and a file with the seconds that its clock is ahead."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("cc") is None:
            pytest.skip("a clock that steps takes a C compiler")
        self._file, library = folder / "step", folder / "stepped.so"
        (folder / "stepped.c").write_text(_SOURCE)
        argv = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(folder / "stepped.c")]
        subprocess.run(argv, check=True)
        self.step(0)
        self.before = ["env", f"LD_PRELOAD={library}", f"STEPPED_CLOCK={self._file}"]

    def step(self, seconds: float) -> None:
        """Have the clock *seconds* ahead of this host's from now on."""
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("d", seconds))
