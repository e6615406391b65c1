"""A job that owns device memory of the stub: job.py DEVICE:MIB ...

Answers a line on standard input with one on standard output: `hash` (of all its device memory; waits while
it is locked), `alloc DEVICE:MIB`, `free` (what was allocated last), `fork FILE ...` (a child that is not
executed, and opens these), `map` (the file of that name, in hexadecimal digits).
"""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
import sys
import time
from pathlib import Path

cuda = ctypes.CDLL("libcuda.so.1")
allocated: list[tuple[int, int]] = []
mapped: list[mmap.mmap] = []


def check(code: int) -> None:
    if code != 0:
        sys.exit(f"error {code}")


def allocate(words: list[str]) -> None:
    for word in words:
        device, mib = (int(number) for number in word.split(":"))
        context, address, size = ctypes.c_void_p(), ctypes.c_uint64(), mib << 20
        check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
        if size == 0:
            continue
        check(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)))
        check(cuda.cuMemcpyHtoD_v2(address, os.urandom(size), ctypes.c_size_t(size)))
        allocated.append((address.value, size))


def digest() -> str:
    total = hashlib.sha256()
    for address, size in allocated:
        copy = ctypes.create_string_buffer(size)
        check(cuda.cuMemcpyDtoH_v2(copy, ctypes.c_uint64(address), ctypes.c_size_t(size)))
        total.update(copy.raw)
    return total.hexdigest()


def answer(word: str, rest: list[str]) -> str:
    if word == "hash":
        return digest()
    if word == "alloc":
        allocate(rest)
        return "ok"
    if word == "free":
        check(cuda.cuMemFree_v2(ctypes.c_uint64(allocated.pop()[0])))
        return "ok"
    if word == "fork":
        pid = os.fork()
        if pid == 0:
            for name in rest:
                os.open(name, os.O_RDONLY)
            time.sleep(600)
        return str(pid)
    if word == "map":
        with Path(os.fsdecode(bytes.fromhex(rest[0]))).open("rb") as file:
            mapped.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
        return "ok"
    return f"unknown: {word}"


check(cuda.cuInit(0))
allocate(sys.argv[1:])
if "STUB_UID" in os.environ:
    os.setuid(int(os.environ["STUB_UID"]))
print("ready", flush=True)
for line in sys.stdin:
    print(answer(line.split()[0], line.split()[1:]), flush=True)
