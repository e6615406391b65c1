"""A PyTorch process that owns device memory: gpu_job.py DEVICE:MIB ...

Answers a line with a line: `hash` (of all its device memory), `busy` (work without an end, from now on),
`fork` (a child that is not executed, and its process id), `ticks` (of a thread that needs no device),
`bandwidth` (bytes a second to and from pinned host memory).
"""

from __future__ import annotations

import os
import sys
import threading
import time

import torch

tensors: list[torch.Tensor] = []
ticks = [0]


def allocate(words: list[str]) -> None:
    for word in words:
        device, mib = (int(number) for number in word.split(":"))
        generator = torch.Generator(f"cuda:{device}").manual_seed(mib + 1)
        size = max(mib << 18, 256)
        tensors.append(torch.empty(size, dtype=torch.int32, device=f"cuda:{device}"))
        tensors[-1].random_(generator=generator)
        torch.cuda.synchronize(device)


def digest() -> str:
    """Return sums that change with each bit, and with its place."""
    sums = []
    for tensor in tensors:
        parts = tensor.split(1 << 24)
        weights = torch.arange(1, parts[0].numel() + 1, device=tensor.device)
        sums += [int((part.long() * weights[: part.numel()]).sum()) for part in parts]
    return "-".join(map(str, sums))


def tick() -> None:
    while True:
        time.sleep(0.01)
        ticks[0] += 1


def bandwidth() -> str:
    source = tensors[0].view(torch.uint8)[: 1 << 30]
    pinned = torch.empty(source.numel(), dtype=torch.uint8, pin_memory=True)
    speeds = []
    for target, origin in ((pinned, source), (source, pinned.clone().pin_memory())):
        before = source.clone()
        target.copy_(origin, non_blocking=True)
        torch.cuda.synchronize()
        start = time.monotonic()
        for _ in range(5):
            target.copy_(origin, non_blocking=True)
        torch.cuda.synchronize()
        speeds.append(5 * source.numel() / (time.monotonic() - start))
        source.copy_(before)
    return " ".join(f"{speed:.0f}" for speed in speeds)


def answer(word: str) -> str:
    if word == "hash":
        return digest()
    if word == "busy":
        torch.cuda._sleep(10**14)  # clock cycles: more than a day
        return "ok"
    if word == "ticks":
        return str(ticks[0])
    if word == "bandwidth":
        return bandwidth()
    pid = os.fork()
    if pid == 0:
        time.sleep(3600)
    return str(pid)


allocate(sys.argv[1:])
threading.Thread(target=tick, daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    print(answer(line.strip()), flush=True)
